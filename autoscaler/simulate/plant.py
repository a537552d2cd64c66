"""Simulated replicas at work: finished requests, waiting requests, and the wait of each request. Pure.

`FluidPlant` treats the requests of a second as a fluid and costs the same at any load; `QueuePlant` simulates
each request. In both, requests wait in one first-in-first-out queue for the ready replicas, which equals
least-loaded dispatch with slots.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Flow, Replica


class PlantCounts(NamedTuple):
    """Totals since the start of the run, and the state at one time."""

    time: float
    """Seconds from the start of the run."""
    arrivals: float
    work: float
    finished: float
    waited: float
    """Seconds from entry to the end of the answer, summed over finished requests; of a fluid, integrated over
    time.
    """
    dropped: float
    capacity: float
    """Work of which the ready replicas were capable."""
    done: float
    """Work that the ready replicas did."""
    busy: float
    """Requests that occupy a slot."""
    waiting: float
    ready: int


@dataclass(frozen=True, slots=True)
class Waits:
    """The wait of requests for a slot, in order of arrival."""

    times: Floats
    """Arrival, in seconds from the start of the run."""
    waits: Floats
    """Wait in seconds."""
    weights: Floats
    """The number of requests of each row."""
    cold: Floats
    """1 where no replica was ready at the arrival, else 0."""


class Plant(Protocol):
    """Replicas that advance over whole seconds with a constant number of ready replicas."""

    @property
    def draining(self) -> float:
        """Replica-seconds of removed replicas that still had requests in slots."""

    def advance(self, until: float, ready: int) -> None:
        """Advance to `until` with `ready` replicas."""

    def counts(self) -> PlantCounts:
        """Return the totals until now."""

    def waits(self) -> Waits:
        """Return the waits of all requests so far; a waiting request counts as having waited until now."""


class FluidPlant:
    """Requests of each second as a fluid; it differs by at most a second from a queue of single requests."""

    draining = 0.0

    def __init__(self, flow: Flow, replica: Replica) -> None:
        self._replica = replica
        self._flow = flow
        self._steps: list[float] = flow.work.tolist()
        self._work: list[float] = np.cumsum(flow.work).tolist()
        self._arrivals: list[float] = np.cumsum(flow.arrivals).tolist()
        self._left: list[float] = []
        self._ready = np.zeros(len(self._work), np.int32)
        self._last_ready = 0
        self._capacity = self._dropped = self._waiting_seconds = 0.0
        self._work_per_request = float(flow.work.sum()) / max(float(flow.arrivals.sum()), 1e-9) or 1.0

    def advance(self, until: float, ready: int) -> None:
        """Advance to the whole second `until` with `ready` replicas."""
        entered, departed, start, end = self._work, self._left, len(self._left), int(until)
        rate = ready * self._replica.rate
        empty = not departed or departed[-1] >= entered[start - 1]
        if empty and max(self._steps[start:end], default=0.0) <= rate:
            departed += entered[start:end]  # as usual: nothing waits
        else:
            self._queue(start, end, rate)
        self._capacity += rate * (end - start)
        self._ready[start:end] = ready
        self._last_ready = ready

    def counts(self) -> PlantCounts:
        """Return the totals until now."""
        now = len(self._left)
        if not now:
            return PlantCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        gone, entered, replica = self._left[-1], self._work[now - 1], self._replica
        finished = self._requests(gone, now)
        before = self._left[-2] if now > 1 else 0.0
        busy = min(
            (gone - before) / self._work_per_request * replica.service_seconds,
            float(self._last_ready * replica.concurrency),
        )
        arrivals = self._arrivals[now - 1]
        dropped = self._dropped / self._work_per_request
        waited = self._waiting_seconds / self._work_per_request + finished * replica.service_seconds
        return PlantCounts(
            time=now,
            arrivals=arrivals,
            work=entered,
            finished=max(finished - dropped, 0.0),
            waited=waited,
            dropped=dropped,
            capacity=self._capacity,
            done=gone - self._dropped,
            busy=busy,
            waiting=arrivals - finished,
            ready=self._last_ready,
        )

    def waits(self) -> Waits:
        """Return for each second the wait of its middle request."""
        seconds = len(self._left)
        arrivals, work = self._flow.arrivals[:seconds], self._flow.work[:seconds]
        entered, departed = np.asarray(self._work[:seconds]), np.asarray(self._left)
        middle = entered - work / 2
        at = np.searchsorted(departed, middle * (1 - 1e-12), side="left")
        never = at >= seconds
        at = np.minimum(at, seconds - 1)
        before = np.where(at > 0, departed[at - 1], 0.0)
        rate = self._ready[at] * self._replica.rate  # a line may end before the second does
        share = np.clip((middle - before) / np.maximum(rate, 1e-12), 0, 1)
        leaves = np.where(never, seconds, at + share)
        times: Floats = np.arange(seconds, dtype=np.float64) + 0.5
        has_arrivals = arrivals > 0
        cold = (self._ready[:seconds] == 0).astype(np.float64)
        return Waits(
            times[has_arrivals],
            np.maximum(leaves - times, 0)[has_arrivals],
            arrivals[has_arrivals],
            cold[has_arrivals],
        )

    def _queue(self, start: int, until: int, rate: float) -> None:
        entered, departed = self._work, self._left
        gone = departed[-1] if departed else 0.0
        waiting = 0.0
        for second in range(start, until):
            gone += rate
            if gone >= entered[second]:
                gone = entered[second]
            else:
                if second >= TIMEOUT and gone < entered[second - TIMEOUT]:
                    self._dropped += entered[second - TIMEOUT] - gone
                    gone = entered[second - TIMEOUT]
                waiting += entered[second] - gone
            departed.append(gone)
        self._waiting_seconds += waiting

    def _requests(self, work: float, now: int) -> float:
        """Return the number of first requests whose work adds up to `work`."""
        if work >= self._work[now - 1]:
            return self._arrivals[now - 1]
        at = bisect_left(self._work, work, 0, now)
        low, start = (self._work[at - 1], self._arrivals[at - 1]) if at else (0.0, 0.0)
        step = self._work[at] - low
        return start + (self._arrivals[at] - start) * ((work - low) / step if step > 0 else 1.0)
