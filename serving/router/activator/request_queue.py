"""The queue of one backend's requests: which are held, within bounds, and which replica gets the next one.

A ticket is the number of a request in order of arrival. Bounds apply to one backend and to all together, so
that a burst at one backend takes at most its own part.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

BODY_TOO_LARGE = "BodyTooLarge"
"""Reason of the only refusal by a bound after which a retry is useless."""


class Refusal(NamedTuple):
    """Why a request is not held."""

    reason: str
    message: str


class Dispatch(NamedTuple):
    """A request that goes to a replica now."""

    ticket: int
    replica: Endpoint


@dataclass
class QueueTotals:
    """Held requests and bytes of all queues."""

    count: int = 0
    bytes: int = 0


@dataclass
class RequestQueue:
    """The held requests of one backend, dispatched in the order of their arrival.

    A replica has at most `permits` requests whose answer has not begun.
    """

    settings: ActivatorSettings
    totals: QueueTotals
    _bytes: dict[int, int] = field(default_factory=dict)
    """Body size of every admitted ticket."""
    _total_bytes: int = 0
    _waiting: list[int] = field(default_factory=list)
    """A heap of submitted tickets; it may have tickets that were removed meanwhile."""
    _dispatched: dict[int, Endpoint] = field(default_factory=dict)
    """The replica of each ticket whose answer has not begun."""
    _unanswered: dict[Endpoint, int] = field(default_factory=dict)
    """Dispatched tickets by replica; a replica without any is absent."""
    _suspect: set[Endpoint] = field(default_factory=set)
    """Ready replicas that have failed at least once."""
    _replicas: tuple[Endpoint, ...] = ()

    def __len__(self) -> int:
        """Return the number of requests that no replica has."""
        return len(self._bytes) - len(self._dispatched)

    @property
    def replicas(self) -> tuple[Endpoint, ...]:
        """Return the ready replicas."""
        return self._replicas

    def set_replicas(self, replicas: Iterable[Endpoint]) -> None:
        """Replace the ready replicas."""
        self._replicas = tuple(replicas)
        self._suspect &= set(self._replicas)

    def admit(self, ticket: int) -> Refusal | None:
        """Hold a request, or return why there is no room for it."""
        bounds = self.settings
        if len(self._bytes) >= bounds.held_per_backend:
            return Refusal("TooManyWaiting", f"{len(self._bytes)} requests already wait for this backend")
        if self.totals.count >= bounds.held:
            return Refusal("TooManyWaiting", f"{self.totals.count} requests already wait")
        self._bytes[ticket] = 0
        self.totals.count += 1
        return None

    def add_bytes(self, ticket: int, size: int) -> Refusal | None:
        """Add to the size of an admitted request, or return why there is no room for it."""
        bounds = self.settings
        if self._bytes[ticket] + size > bounds.body_bytes:
            return Refusal(BODY_TOO_LARGE, f"the body has more than {bounds.body_bytes} bytes")
        if self._total_bytes + size > bounds.bytes_per_backend or self.totals.bytes + size > bounds.bytes:
            return Refusal("TooManyBytesWaiting", "the bodies of the waiting requests are too large")
        self._bytes[ticket] += size
        self._total_bytes += size
        self.totals.bytes += size
        return None

    def submit(self, ticket: int) -> None:
        """Queue a complete request for a replica; submitted again, it keeps its place."""
        heapq.heappush(self._waiting, ticket)

    def dispatch(self) -> list[Dispatch]:
        """Return the requests that go to a replica now; each occupies it until `release_replica`."""
        dispatches = []
        while self._waiting:
            if self._waiting[0] not in self._bytes:
                heapq.heappop(self._waiting)
                continue
            replica = self._free_replica()
            if replica is None:
                break
            ticket = heapq.heappop(self._waiting)
            self._dispatched[ticket] = replica
            self._unanswered[replica] = self._unanswered.get(replica, 0) + 1
            dispatches.append(Dispatch(ticket, replica))
        return dispatches

    def release_replica(self, ticket: int) -> None:
        """Free the replica of a request that it has begun to answer, or on which it has failed."""
        replica = self._dispatched.pop(ticket, None)
        if replica is not None:
            self._unanswered[replica] -= 1
            if not self._unanswered[replica]:
                del self._unanswered[replica]

    def mark_failed(self, ticket: int) -> None:
        """Note that a replica could not be reached or did not answer; others are preferred from now on."""
        replica = self._dispatched.get(ticket)
        if replica in self._replicas:
            self._suspect.add(replica)
        self.release_replica(ticket)

    def remove(self, ticket: int) -> None:
        """Forget a request, in any state."""
        self.release_replica(ticket)
        size = self._bytes.pop(ticket, None)
        if size is not None:
            self._total_bytes -= size
            self.totals.bytes -= size
            self.totals.count -= 1

    def _free_replica(self) -> Endpoint | None:
        """Return the least loaded replica, one without a failure first; None if all are busy."""
        free = [r for r in self._replicas if self._unanswered.get(r, 0) < self.settings.permits]
        return min(free, key=lambda r: (r in self._suspect, self._unanswered.get(r, 0)), default=None)
