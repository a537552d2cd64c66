"""Simulated replicas with one first-in-first-out queue of single requests. Pure.

While no request waits, each request ends when it would end with unlimited slots. These ends do not depend on
the policy: `UnqueuedService` has them, and such a span of time needs no step for each request.
"""

import heapq
import math
from array import array
from bisect import bisect_left, bisect_right

import numpy as np

from autoscaler.simulate.plant import PlantCounts, RequestWaits
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
        self._unqueued = requests.unqueued
        self._is_unqueued = True
        """Whether no request waits, and each request in a slot began at its arrival."""
        self._unqueued_from = 0.0
        """Seconds of the run from which on `UnqueuedService` is valid again: every request that waited has
        ended, and every dropped request would have ended."""
        self._ended = 0
        """Requests that have ended by `UnqueuedService`, dropped ones too; valid while `_is_unqueued`."""
        self._ends: list[tuple[float, float]] = []
        """A heap: the end of each request in a slot, and its seconds from arrival to end; empty while
        `_is_unqueued`."""
        count = len(requests.times)
        self._waits = array("d", bytes(8 * count))
        """Seconds of wait of each request, in order of arrival."""
        self._cold = array("d", bytes(8 * count))
        """1 where no replica was ready at the arrival."""
        self._arrived = self._begun = 0
        """Requests that have arrived, and those that have got a slot or were dropped."""
        self._now, self._ready = 0.0, 0
        self._finished = self._dropped = 0
        self._latency_sum = self._possible_work = self._finished_work = 0.0
        self.draining = 0.0

    def advance(self, until: float, ready: int) -> None:
        """Advance to `until` with `ready` replicas."""
        slots = ready * self._replica.concurrency
        if not (self._is_unqueued and self._advance_unqueued(until, slots)):
            self._advance_each(until, slots)
            self._drop(until)
            self._is_unqueued = not self._waiting and self._unqueued_from <= until
            if self._is_unqueued:
                self._ended = bisect_right(self._unqueued.ends, until, self._ended)
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
            latency_sum=self._latency_sum,
            dropped=self._dropped,
            possible_work=self._possible_work,
            finished_work=self._finished_work,
            busy=self._busy,
            waiting=self._waiting,
            ready=self._ready,
        )

    def waits(self) -> RequestWaits:
        """Return the wait of each request so far."""
        times: Floats = self._requests.times[: self._arrived]
        waits: Floats = np.frombuffer(self._waits)[: self._arrived].copy()
        waits[self._begun :] = self._now - times[self._begun :]
        cold = np.frombuffer(self._cold)[: self._arrived].copy()
        return RequestWaits(times, waits, np.ones(len(times)), cold)

    @property
    def _waiting(self) -> int:
        return self._arrived - self._begun

    @property
    def _busy(self) -> int:
        return self._arrived - self._ended if self._is_unqueued else len(self._ends)

    def _advance_unqueued(self, until: float, slots: int) -> bool:
        """Advance to `until` and return True if no request has to wait. Otherwise fill `_ends` with the
        requests in slots and return False.
        """
        unqueued, first = self._unqueued, self._arrived
        arrived = bisect_left(self._times, until, first)
        if max(unqueued.busy[first:arrived], default=0) > slots:
            self._ends = unqueued.in_slots(self._arrived, self._ended)
            return False
        ended = bisect_right(unqueued.ends, until, self._ended)
        self._finished += ended - self._ended
        self._latency_sum += unqueued.served[ended] - unqueued.served[self._ended]
        self._arrived = self._begun = arrived
        self._ended = ended
        return True

    def _advance_each(self, until: float, slots: int) -> None:
        """Advance to `until` by each end and each arrival."""
        ends, times = self._ends, self._times
        while self._waiting and len(ends) < slots:
            self._serve(self._now)
        coming = times[self._arrived]
        while True:
            if ends and ends[0][0] <= coming:
                if ends[0][0] > until:
                    break
                end, latency = heapq.heappop(ends)
                self._finished += 1
                self._latency_sum += latency
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
            self._unqueued_from = max(self._unqueued_from, end)
        self._begun += 1
        heapq.heappush(self._ends, (end, end - arrived))

    def _drop(self, until: float) -> None:
        """Drop the requests that have waited for `TIMEOUT`."""
        while self._waiting and self._times[self._begun] <= until - TIMEOUT:
            end = self._times[self._begun] + self._service[self._begun]
            self._unqueued_from = max(self._unqueued_from, end)
            self._waits[self._begun] = float(TIMEOUT)
            self._begun += 1
            self._dropped += 1

    def _count(self, until: float, ready: int, slots: int) -> None:
        """Add the possible work, the finished work and the draining replicas of the time since the last
        call, as if the slots that are busy now had been busy all the time.
        """
        passed = until - self._now
        busy = self._busy
        self._possible_work += slots * passed / self._replica.concurrency * self._replica.rate
        self._finished_work += min(busy, slots) * passed / self._replica.concurrency * self._replica.rate
        if busy > slots:
            self.draining += math.ceil((busy - slots) / self._replica.concurrency) * passed
        self._now, self._ready = until, ready
