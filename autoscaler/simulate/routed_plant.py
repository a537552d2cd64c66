"""Replicas with a queue each, behind a load balancer that picks the less busy of two. Pure.

A request that waits at one replica stays there when other replicas become ready, which the shared queue of
`QueuePlant` hides.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from autoscaler.simulate.plant import PlantCounts, Waits
from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Replica, Requests
from serving.settings import ActivatorSettings

PERMITS = ActivatorSettings().permits
"""Most held requests that a ready replica has at a time; the others stay held."""
SEED = 23
"""Seed of the random choices of two replicas, one for each request, independent of the replicas."""


@dataclass(slots=True, eq=False)
class _Line:
    """The requests of a replica, by number."""

    busy: int = 0
    held: int = 0
    """Unanswered requests of the replica that were held."""
    waiting: deque[int] = field(default_factory=deque)

    @property
    def active(self) -> int:
        return self.busy + len(self.waiting)


class RoutedPlant:
    """Sends each request to the less loaded of two randomly chosen ready replicas, which may be the same one.

    That is Envoy's LEAST_REQUEST with equal weights and its default of two choices. Requests that arrive
    while no replica is ready are held, and go in order to the ready replica with the fewest held requests. A
    removed replica finishes its queue, gets nothing more, and costs its time until then; the youngest is
    removed first.
    """

    def __init__(self, requests: Requests, replica: Replica, *, ending: float = 0.0) -> None:
        """Create the plant.

        Args:
            requests: in order of arrival.
            replica: capacity of each replica.
            ending: seconds that a removed replica without requests costs.
        """
        self._replica, self._ending = replica, ending
        self._service: list[float] = requests.service.tolist()
        self._times: list[float] = [*requests.times.tolist(), math.inf]
        self._entered: Floats = np.concatenate([[0.0], np.cumsum(requests.work)])
        self._choices: list[list[float]] = (
            np.random.default_rng(SEED).random((len(self._service), 2)).tolist()
        )
        self._lines: list[_Line] = []
        """Ready replicas, the oldest first."""
        self._leaving: list[_Line] = []
        self._held: deque[int] = deque()
        self._were_held: set[int] = set()
        """Held requests that are at a replica."""
        self._ends: list[tuple[float, int, _Line]] = []
        """End, number and replica of each request in a slot."""
        self._waits = [math.nan] * len(self._service)
        """Start of service; NaN before it."""
        self._cold: list[float] = []
        self._arrived = self._finished = self._dropped = 0
        self._now = 0.0
        self._waited = self._capacity = self._done = 0.0
        self.draining = 0.0

    def advance(self, until: float, ready: int) -> None:
        """Advance to `until` with `ready` replicas."""
        self._resize(ready)
        self._release(self._now)
        while True:
            coming = self._times[self._arrived]
            if self._ends and self._ends[0][0] <= coming:
                if self._ends[0][0] > until:
                    break
                self._finish()
            elif coming >= until:
                break
            else:
                self._arrived += 1
                self._cold.append(0.0 if ready else 1.0)
                if ready:
                    self._send(self._arrived - 1, coming)
                else:
                    self._held.append(self._arrived - 1)
        self._drop(until)
        self._count(until)

    def counts(self) -> PlantCounts:
        """Return the totals until now."""
        busy = len(self._ends)
        return PlantCounts(
            time=self._now,
            arrivals=self._arrived,
            work=float(self._entered[self._arrived]),
            finished=self._finished,
            waited=self._waited,
            dropped=self._dropped,
            capacity=self._capacity,
            done=self._done,
            busy=busy,
            ready=len(self._lines),
            waiting=self._arrived - self._finished - self._dropped - busy,
        )

    def waits(self) -> Waits:
        """Return the wait of each request so far."""
        times: Floats = np.asarray(self._times[: self._arrived], np.float64)
        served = np.asarray(self._waits[: self._arrived], np.float64)
        waits: Floats = np.where(np.isnan(served), self._now - times, served)
        return Waits(times, waits, np.ones(len(times)), np.asarray(self._cold))

    def _resize(self, ready: int) -> None:
        self._lines += [_Line() for _ in range(ready - len(self._lines))]
        self._leaving += self._lines[ready:]
        self.draining += self._ending * len(self._lines[ready:])
        del self._lines[ready:]

    def _send(self, number: int, now: float) -> None:
        first, second = (self._lines[int(choice * len(self._lines))] for choice in self._choices[number])
        self._queue(second if second.active < first.active else first, number, now)

    def _release(self, now: float) -> None:
        """Forward held requests while replicas have permits."""
        while self._held and self._lines:
            line = min(self._lines, key=lambda line: line.held)
            if line.held >= PERMITS:
                return
            number = self._held.popleft()
            self._were_held.add(number)
            line.held += 1
            self._queue(line, number, now)

    def _queue(self, line: _Line, number: int, now: float) -> None:
        line.waiting.append(number)
        if line.busy < self._replica.concurrency:
            self._serve(line, now)

    def _serve(self, line: _Line, now: float) -> None:
        number = line.waiting.popleft()
        line.busy += 1
        self._waits[number] = now - self._times[number]
        heapq.heappush(self._ends, (now + self._service[number], number, line))

    def _finish(self) -> None:
        end, number, line = heapq.heappop(self._ends)
        line.busy -= 1
        self._finished += 1
        self._waited += end - self._times[number]
        if line.waiting:
            self._serve(line, end)
        self._permit(line, number)
        self._release(end)

    def _permit(self, line: _Line, number: int) -> None:
        """Forward a held request in place of one that left its replica."""
        if number in self._were_held:
            self._were_held.remove(number)
            line.held -= 1

    def _drop(self, until: float) -> None:
        while self._held and self._is_old(self._held[0], until):
            self._give_up(self._held.popleft())
        for line in (*self._lines, *self._leaving):
            for number in [number for number in line.waiting if self._is_old(number, until)]:
                line.waiting.remove(number)
                self._permit(line, number)
                self._give_up(number)

    def _is_old(self, number: int, until: float) -> bool:
        return self._times[number] <= until - TIMEOUT

    def _give_up(self, number: int) -> None:
        self._waits[number] = float(TIMEOUT)
        self._dropped += 1

    def _count(self, until: float) -> None:
        """Add the integrals over the `seconds` since the last call."""
        passed = until - self._now
        rate = self._replica.rate
        self._capacity += len(self._lines) * passed * rate
        self._done += sum(line.busy for line in self._lines) * passed / self._replica.concurrency * rate
        self._leaving = [line for line in self._leaving if line.busy]
        self.draining += len(self._leaving) * passed
        self._now = until
