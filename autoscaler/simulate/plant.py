"""Simulated replicas at work: finished requests, waiting requests, and the wait of each request. Pure.

`FluidPlant` treats the requests of a second as a fluid and costs the same at any load; `QueuePlant` simulates
each request. Both have one first-in-first-out queue for all ready replicas, which equals least-loaded
dispatch with slots; in `RoutedPlant` each replica has its own.
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
    """Requests that have arrived."""
    work: float
    """Work of the requests that have arrived."""
    finished: float
    """Requests that were answered."""
    latency_sum: float
    """Seconds from arrival to the end of the answer, summed over finished requests; of a fluid, the waiting
    requests integrated over time, and the service seconds of finished and dropped requests.
    """
    dropped: float
    """Requests that were abandoned after `TIMEOUT`."""
    possible_work: float
    """Work that the ready replicas could have done."""
    finished_work: float
    """Work that the ready replicas did."""
    busy: float
    """Requests that occupy a slot at `time`."""
    waiting: float
    """Requests that wait for a slot at `time`."""
    ready: int
    """Ready replicas at `time`."""


NO_COUNTS = PlantCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""The counts at the start of a run."""


@dataclass(frozen=True, slots=True)
class RequestWaits:
    """The wait of requests for a slot, as columns of a table in order of arrival. A row is one request, or
    all requests of one second of a fluid.
    """

    times: Floats
    """Arrival, in seconds from the start of the run."""
    seconds: Floats
    """Wait in seconds."""
    weights: Floats
    """The number of requests of each row."""
    cold: Floats
    """1 where no replica was ready at the arrival, else 0."""


class Plant(Protocol):
    """Replicas that advance over spans with a constant number of ready replicas; spans are multiples of
    `Workload.step`, usually a second.
    """

    @property
    def draining(self) -> float:
        """Replica-seconds of removed replicas that still had requests in slots."""

    def advance(self, until: float, ready: int) -> None:
        """Advance to `until` with `ready` replicas."""

    def counts(self) -> PlantCounts:
        """Return the totals so far, and the state now."""

    def waits(self) -> RequestWaits:
        """Return the waits of all requests so far; a waiting request counts as having waited until now."""


class FluidPlant:
    """Requests as a fluid; a wait differs by at most a second from the wait in a queue of single requests."""

    draining = 0.0

    def __init__(self, flow: Flow, replica: Replica) -> None:
        self._replica = replica
        self._flow = flow
        self._work_of_second: list[float] = flow.work.tolist()
        self._entered: list[float] = np.cumsum(flow.work).tolist()
        """Total work that has arrived by the end of each second of the run."""
        self._arrivals: list[float] = np.cumsum(flow.arrivals).tolist()
        """Total requests that have arrived by the end of each second of the run."""
        self._departed: list[float] = []
        """Total work that was done or dropped by the end of each second so far."""
        self._ready = np.zeros(len(self._entered), np.int32)
        self._last_ready = 0
        self._possible_work = 0.0
        """Work that the ready replicas could have done."""
        self._dropped_work = 0.0
        """Work that was abandoned after `TIMEOUT`."""
        self._backlog_sum = 0.0
        """Work that waits at the end of each second so far, summed."""
        self._work_per_request = float(flow.work.sum()) / max(float(flow.arrivals.sum()), 1e-9) or 1.0

    def advance(self, until: float, ready: int) -> None:
        """Advance to the whole second `until` with `ready` replicas."""
        entered, departed, start, end = self._entered, self._departed, len(self._departed), int(until)
        rate = ready * self._replica.rate
        empty = not departed or departed[-1] >= entered[start - 1]
        if empty and max(self._work_of_second[start:end], default=0.0) <= rate:
            departed += entered[start:end]  # as usual: nothing waits
        else:
            self._queue(start, end, rate)
        self._possible_work += rate * (end - start)
        self._ready[start:end] = ready
        self._last_ready = ready

    def counts(self) -> PlantCounts:
        """Return the totals until now."""
        now = len(self._departed)
        if not now:
            return NO_COUNTS
        departed, entered, replica = self._departed[-1], self._entered[now - 1], self._replica
        departed_requests = self._requests(departed, now)
        departed_before = self._departed[-2] if now > 1 else 0.0
        # Little's law: requests of the last second, times their service time, but at most all slots.
        busy = min(
            (departed - departed_before) / self._work_per_request * replica.service_seconds,
            float(self._last_ready * replica.concurrency),
        )
        arrivals = self._arrivals[now - 1]
        dropped = self._dropped_work / self._work_per_request
        waited = self._backlog_sum / self._work_per_request
        return PlantCounts(
            time=now,
            arrivals=arrivals,
            work=entered,
            finished=max(departed_requests - dropped, 0.0),
            latency_sum=waited + departed_requests * replica.service_seconds,
            dropped=dropped,
            possible_work=self._possible_work,
            finished_work=departed - self._dropped_work,
            busy=busy,
            waiting=arrivals - departed_requests,
            ready=self._last_ready,
        )

    def waits(self) -> RequestWaits:
        """Return for each second the wait of its middle request: from the middle of the second until the work
        of the requests before it has departed.
        """
        seconds = len(self._departed)
        arrivals, work = self._flow.arrivals[:seconds], self._flow.work[:seconds]
        entered, departed = np.asarray(self._entered[:seconds]), np.asarray(self._departed)
        middle = entered - work / 2
        departure_second = np.searchsorted(departed, middle * (1 - 1e-12), side="left")
        is_waiting = departure_second >= seconds
        departure_second = np.minimum(departure_second, seconds - 1)
        departed_before = np.where(departure_second > 0, departed[departure_second - 1], 0.0)
        # Divided by the rate, not by the work of the second: the queue may be empty before the second ends.
        rate = self._ready[departure_second] * self._replica.rate
        share_of_second = np.clip((middle - departed_before) / np.maximum(rate, 1e-12), 0, 1)
        leaves = np.where(is_waiting, seconds, departure_second + share_of_second)
        times: Floats = np.arange(seconds, dtype=np.float64) + 0.5
        has_arrivals = arrivals > 0
        cold = (self._ready[:seconds] == 0).astype(np.float64)
        return RequestWaits(
            times[has_arrivals],
            np.maximum(leaves - times, 0)[has_arrivals],
            arrivals[has_arrivals],
            cold[has_arrivals],
        )

    def _queue(self, start: int, until: int, rate: float) -> None:
        """Advance from second `start` to `until` with a queue, at `rate` work per second."""
        entered, departed = self._entered, self._departed
        total = departed[-1] if departed else 0.0
        backlog_sum = 0.0
        for second in range(start, until):
            total += rate
            if total >= entered[second]:
                total = entered[second]
            else:
                if second >= TIMEOUT and total < entered[second - TIMEOUT]:
                    self._dropped_work += entered[second - TIMEOUT] - total
                    total = entered[second - TIMEOUT]
                backlog_sum += entered[second] - total
            departed.append(total)
        self._backlog_sum += backlog_sum

    def _requests(self, work: float, now: int) -> float:
        """Return how many requests, in order of arrival, have the total work `work`, linear in a second."""
        if work >= self._entered[now - 1]:
            return self._arrivals[now - 1]
        second = bisect_left(self._entered, work, 0, now)
        entered, arrived = (self._entered[second - 1], self._arrivals[second - 1]) if second else (0.0, 0.0)
        work_of_second = self._entered[second] - entered
        share = (work - entered) / work_of_second if work_of_second > 0 else 1.0
        return arrived + (self._arrivals[second] - arrived) * share
