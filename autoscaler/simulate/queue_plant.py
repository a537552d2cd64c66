"""Simulated replicas that serve each request alone, from one first-in-first-out queue. Pure.

While no request waits, all of them end when they would with unlimited slots, which does not depend on the
policy: such stretches of time take no work for a single request.
"""

import heapq
import math
from array import array
from bisect import bisect_left, bisect_right

import numpy as np

from autoscaler.simulate.plant import PlantCounts, Waits
from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Replica, Requests


class QueuePlant:
    """A first-in-first-out queue; each request takes one slot for its service time."""

    def __init__(self, requests: Requests, replica: Replica) -> None:
        self._replica = replica
        self._requests = requests
        self._service = array("d", requests.service.tobytes())
        self._times = array("d", requests.times.tobytes())
        self._times.append(math.inf)
        self._entered: Floats = np.concatenate([[0.0], np.cumsum(requests.work)])
        self._prompt = requests.prompt
        self._is_prompt = True
        """Whether no request waits, and those in a slot began at their arrival."""
        self._prompt_from = 0.0
        """When the last request ends that waited, or would have ended without waiting for its timeout."""
        self._ended = 0
        """Requests that have ended with unlimited slots; of use while `_is_prompt`."""
        self._ends: list[tuple[float, float]] = []
        """The end of each request in a slot, and its total time in the service; empty while `_is_prompt`."""
        count = len(requests.times)
        self._waits = array("d", bytes(8 * count))
        """Seconds; in order of arrival, so that a position identifies a request."""
        self._cold = array("d", bytes(8 * count))
        """1 where no replica was ready at the arrival."""
        self._arrived = self._begun = 0
        """Requests that have arrived, and those that have got a slot or were dropped."""
        self._now, self._ready = 0.0, 0
        self._finished = self._dropped = 0
        self._waited = self._capacity = self._done = 0.0
        self.draining = 0.0

    def advance(self, until: float, ready: int) -> None:
        """Advance to `until` with `ready` replicas."""
        slots = ready * self._replica.concurrency
        if not (self._is_prompt and self._advance_promptly(until, slots)):
            self._advance_each(until, slots)
            self._drop(until)
            self._is_prompt = not self._waiting and self._prompt_from <= until
            if self._is_prompt:
                self._ended = bisect_right(self._prompt.ends, until, self._ended)
                self._ends.clear()
        self._count(until, ready, slots)

    def overdue(self, arrived: float) -> float | None:
        """Return the service time of the first waiting request if it arrived before `arrived`, else None."""
        first = self._begun
        return self._service[first] if first < self._arrived and self._times[first] < arrived else None

    def counts(self) -> PlantCounts:
        """Return the totals until now."""
        return PlantCounts(
            time=self._now,
            arrivals=self._arrived,
            work=float(self._entered[self._arrived]),
            finished=self._finished,
            waited=self._waited,
            dropped=self._dropped,
            capacity=self._capacity,
            done=self._done,
            busy=self._busy,
            waiting=self._waiting,
            ready=self._ready,
        )

    def waits(self) -> Waits:
        """Return the wait of each request so far."""
        times: Floats = self._requests.times[: self._arrived]
        waits: Floats = np.frombuffer(self._waits)[: self._arrived].copy()
        waits[self._begun :] = self._now - times[self._begun :]
        return Waits(times, waits, np.ones(len(times)), np.frombuffer(self._cold)[: self._arrived].copy())

    @property
    def _waiting(self) -> int:
        return self._arrived - self._begun

    @property
    def _busy(self) -> int:
        return self._arrived - self._ended if self._is_prompt else len(self._ends)

    def _advance_promptly(self, until: float, slots: int) -> bool:
        """Advance to `until` if no request has to wait; otherwise load the requests in slots, and return
        False.
        """
        prompt, first = self._prompt, self._arrived
        arrived = bisect_left(self._times, until, first)
        if max(prompt.busy[first:arrived], default=0) > slots:
            self._ends = prompt.in_slots(self._arrived, self._ended)
            return False
        ended = bisect_right(prompt.ends, until, self._ended)
        self._finished += ended - self._ended
        self._waited += prompt.served[ended] - prompt.served[self._ended]
        self._arrived = self._begun = arrived
        self._ended = ended
        return True

    def _advance_each(self, until: float, slots: int) -> None:
        ends, times = self._ends, self._times
        while self._waiting and len(ends) < slots:
            self._serve(self._now)
        coming = times[self._arrived]
        while True:
            if ends and ends[0][0] <= coming:
                if ends[0][0] > until:
                    break
                end, took = heapq.heappop(ends)
                self._finished += 1
                self._waited += took
                if self._waiting and len(ends) < slots:
                    self._serve(end)
            else:
                if coming >= until:
                    break
                if not slots:
                    self._cold[self._arrived] = 1.0
                self._arrived += 1
                if len(ends) < slots:
                    self._serve(coming)
                coming = times[self._arrived]

    def _serve(self, now: float) -> None:
        """Give the first waiting request a slot."""
        first = self._begun
        arrived, end = self._times[first], now + self._service[first]
        if now > arrived:
            self._waits[first] = now - arrived
            self._prompt_from = max(self._prompt_from, end)
        self._begun += 1
        heapq.heappush(self._ends, (end, end - arrived))

    def _drop(self, until: float) -> None:
        while self._waiting and self._times[self._begun] <= until - TIMEOUT:
            end = self._times[self._begun] + self._service[self._begun]
            self._prompt_from = max(self._prompt_from, end)
            self._waits[self._begun] = float(TIMEOUT)
            self._begun += 1
            self._dropped += 1

    def _count(self, until: float, ready: int, slots: int) -> None:
        """Add the integrals over the `seconds` since the last call."""
        passed = until - self._now
        busy = self._busy
        self._capacity += slots * passed / self._replica.concurrency * self._replica.rate
        self._done += min(busy, slots) * passed / self._replica.concurrency * self._replica.rate
        if busy > slots:
            self.draining += math.ceil((busy - slots) / self._replica.concurrency) * passed
        self._now, self._ready = until, ready
