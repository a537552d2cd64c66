"""Replicas with a queue each, behind a load balancer that picks the less busy of two. Pure.

A request that waits at one replica stays there when other replicas become ready, which the shared queue of
`QueuePlant` hides.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from autoscaler.simulate.plant import PlantCounts, RequestWaits
from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Replica, Requests
from serving.settings import ActivatorSettings

PERMITS = ActivatorSettings().permits
"""Most held requests that a ready replica has at a time; the others stay held."""
SEED = 23
"""Seed of the random choices of two replicas, one for each request, independent of the replicas."""


@dataclass(slots=True, eq=False)
class _ReplicaQueue:
    """The requests of one replica. A request's number is its position in order of arrival."""

    busy: int = 0
    """Occupied slots."""
    held: int = 0
    """Permits in use: unanswered requests of the replica that were held before."""
    waiting: deque[int] = field(default_factory=deque)
    """Numbers of the requests that wait for a slot."""

    @property
    def active(self) -> int:
        """Requests in slots and waiting ones: the load that the load balancer compares."""
        return self.busy + len(self.waiting)


class RoutedPlant:
    """Sends each request to the less loaded of two randomly chosen ready replicas, which may be the same one.

    That is Envoy's LEAST_REQUEST with equal weights and its default of two choices. Requests that arrive
    while no replica is ready are held, and go in order to the ready replica with the fewest held requests. A
    removed replica gets no further request, and is paid until its queue is empty; the youngest replica is
    removed first.
    """

    def __init__(self, requests: Requests, replica: Replica, *, ending: float = 0.0) -> None:
        """Create the plant.

        Args:
            requests: in order of arrival.
            replica: capacity of each replica.
            ending: seconds for which every removed replica is paid beyond the end of its last request.
        """
        self._replica, self._ending = replica, ending
        self._service: list[float] = requests.service.tolist()
        self._times: list[float] = [*requests.times.tolist(), math.inf]
        self._entered: Floats = np.concatenate([[0.0], np.cumsum(requests.work)])
        self._choices: list[list[float]] = (
            np.random.default_rng(SEED).random((len(self._service), 2)).tolist()
        )
        """Two random numbers of each request, 0 to 1, which choose two of the ready replicas."""
        self._queues: list[_ReplicaQueue] = []
        """Ready replicas, the oldest first."""
        self._removed: list[_ReplicaQueue] = []
        """Removed replicas that still have requests."""
        self._held: deque[int] = deque()
        """Numbers of the held requests."""
        self._were_held: set[int] = set()
        """Numbers of the requests at a replica that were held before: each has one of its permits."""
        self._ends: list[tuple[float, int, _ReplicaQueue]] = []
        """End, number and replica of each request in a slot."""
        self._waits = [math.nan] * len(self._service)
        """Seconds of wait of each request; NaN before it gets a slot."""
        self._cold: list[float] = []
        """1 for each arrived request that met no ready replica, else 0."""
        self._arrived = self._finished = self._dropped = 0
        self._now = 0.0
        self._latency_sum = self._possible_work = self._finished_work = 0.0
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
            latency_sum=self._latency_sum,
            dropped=self._dropped,
            possible_work=self._possible_work,
            finished_work=self._finished_work,
            busy=busy,
            ready=len(self._queues),
            waiting=self._arrived - self._finished - self._dropped - busy,
        )

    def waits(self) -> RequestWaits:
        """Return the wait of each request so far."""
        times: Floats = np.asarray(self._times[: self._arrived], np.float64)
        served = np.asarray(self._waits[: self._arrived], np.float64)
        waits: Floats = np.where(np.isnan(served), self._now - times, served)
        return RequestWaits(times, waits, np.ones(len(times)), np.asarray(self._cold))

    def _resize(self, ready: int) -> None:
        self._queues += [_ReplicaQueue() for _ in range(ready - len(self._queues))]
        self._removed += self._queues[ready:]
        self.draining += self._ending * len(self._queues[ready:])
        del self._queues[ready:]

    def _send(self, number: int, now: float) -> None:
        first, second = (self._queues[int(choice * len(self._queues))] for choice in self._choices[number])
        self._enqueue(second if second.active < first.active else first, number, now)

    def _release(self, now: float) -> None:
        """Forward held requests while replicas have permits."""
        while self._held and self._queues:
            queue = min(self._queues, key=lambda queue: queue.held)
            if queue.held >= PERMITS:
                return
            number = self._held.popleft()
            self._were_held.add(number)
            queue.held += 1
            self._enqueue(queue, number, now)

    def _enqueue(self, queue: _ReplicaQueue, number: int, now: float) -> None:
        queue.waiting.append(number)
        if queue.busy < self._replica.concurrency:
            self._serve(queue, now)

    def _serve(self, queue: _ReplicaQueue, now: float) -> None:
        number = queue.waiting.popleft()
        queue.busy += 1
        self._waits[number] = now - self._times[number]
        heapq.heappush(self._ends, (now + self._service[number], number, queue))

    def _finish(self) -> None:
        end, number, queue = heapq.heappop(self._ends)
        queue.busy -= 1
        self._finished += 1
        self._latency_sum += end - self._times[number]
        if queue.waiting:
            self._serve(queue, end)
        self._return_permit(queue, number)
        self._release(end)

    def _return_permit(self, queue: _ReplicaQueue, number: int) -> None:
        """Return the permit of a request that left its replica, if the request was held."""
        if number in self._were_held:
            self._were_held.remove(number)
            queue.held -= 1

    def _drop(self, until: float) -> None:
        while self._held and self._is_old(self._held[0], until):
            self._give_up(self._held.popleft())
        for queue in (*self._queues, *self._removed):
            for number in [number for number in queue.waiting if self._is_old(number, until)]:
                queue.waiting.remove(number)
                self._return_permit(queue, number)
                self._give_up(number)

    def _is_old(self, number: int, until: float) -> bool:
        return self._times[number] <= until - TIMEOUT

    def _give_up(self, number: int) -> None:
        self._waits[number] = float(TIMEOUT)
        self._dropped += 1

    def _count(self, until: float) -> None:
        """Add the possible work, the finished work and the draining replicas of the time since the last
        call, as if the slots that are busy now had been busy all the time.
        """
        passed = until - self._now
        rate = self._replica.rate
        self._possible_work += len(self._queues) * passed * rate
        busy = sum(queue.busy for queue in self._queues)
        self._finished_work += busy * passed / self._replica.concurrency * rate
        self._removed = [queue for queue in self._removed if queue.busy]
        self.draining += len(self._removed) * passed
        self._now = until
