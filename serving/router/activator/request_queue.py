"""Who waits for a replica of which backend, within bounds, and whose turn it is. Pure.

A ticket is one request, by the number in which it came; what it is and how it is sent is `forwarding`'s. Every bound
belongs to one backend or to all of them together, so that one backend's burst takes at most its own part.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

BODY_TOO_LARGE = "BodyTooLarge"
"""The one refusal that asking again later does not help."""


class Refusal(NamedTuple):
    """Why a request is not held."""

    reason: str
    message: str


class Turn(NamedTuple):
    """This request goes to this replica now."""

    ticket: int
    replica: Endpoint


@dataclass
class Total:
    """What all lines hold together."""

    count: int = 0
    bytes: int = 0


@dataclass
class Line:
    """The requests of one backend: they are told their turns in the order in which they came.

    A replica has at most `permits` of them that it has not begun to answer.
    """

    settings: ActivatorSettings
    total: Total
    _bytes: dict[int, int] = field(default_factory=dict)
    _size: int = 0
    _asking: list[int] = field(default_factory=list)
    _sent: dict[int, Endpoint] = field(default_factory=dict)
    _busy: dict[Endpoint, int] = field(default_factory=dict)
    _doubtful: set[Endpoint] = field(default_factory=set)
    _replicas: tuple[Endpoint, ...] = ()

    def __len__(self) -> int:
        """Return how many wait: those that are not with a replica."""
        return len(self._bytes) - len(self._sent)

    @property
    def replicas(self) -> tuple[Endpoint, ...]:
        """Return the ready ones."""
        return self._replicas

    def aim(self, replicas: Iterable[Endpoint]) -> None:
        """Know these as ready from now on, and no others."""
        self._replicas = tuple(replicas)
        self._doubtful &= set(self._replicas)

    def enter(self, ticket: int) -> Refusal | None:
        """Let a request wait, if there is room."""
        bounds = self.settings
        if len(self._bytes) >= bounds.held_per_backend:
            return Refusal("TooManyWaiting", f"{len(self._bytes)} requests already wait for this backend")
        if self.total.count >= bounds.held:
            return Refusal("TooManyWaiting", f"{self.total.count} requests already wait")
        self._bytes[ticket] = 0
        self.total.count += 1
        return None

    def grow(self, ticket: int, size: int) -> Refusal | None:
        """Add so many bytes to what a request holds, if there is room."""
        bounds = self.settings
        if self._bytes[ticket] + size > bounds.body_bytes:
            return Refusal(BODY_TOO_LARGE, f"the body has more than {bounds.body_bytes} bytes")
        if self._size + size > bounds.bytes_per_backend or self.total.bytes + size > bounds.bytes:
            return Refusal("TooManyBytesWaiting", "the requests that already wait are too large together")
        self._bytes[ticket] += size
        self._size += size
        self.total.bytes += size
        return None

    def ask(self, ticket: int) -> None:
        """A request is complete, and waits for its turn; asked again, it has not lost its place."""
        heapq.heappush(self._asking, ticket)

    def turns(self) -> list[Turn]:
        """Return whose turn it is by now; their replicas are busy with them until `begun`."""
        found = []
        while self._asking:
            if self._asking[0] not in self._bytes:
                heapq.heappop(self._asking)
                continue
            replica = self._free()
            if replica is None:
                break
            ticket = heapq.heappop(self._asking)
            self._sent[ticket] = replica
            self._busy[replica] = self._busy.get(replica, 0) + 1
            found.append(Turn(ticket, replica))
        return found

    def begun(self, ticket: int) -> None:
        """A replica has begun to answer, or to fail; it can take the next."""
        replica = self._sent.pop(ticket, None)
        if replica is not None:
            self._busy[replica] -= 1
            if not self._busy[replica]:
                del self._busy[replica]

    def failed(self, ticket: int) -> None:
        """A replica could not be reached or did not answer: others first, from now on."""
        replica = self._sent.get(ticket)
        if replica in self._replicas:
            self._doubtful.add(replica)
        self.begun(ticket)

    def leave(self, ticket: int) -> None:
        """Forget a request, whatever has become of it."""
        self.begun(ticket)
        size = self._bytes.pop(ticket, None)
        if size is not None:
            self._size -= size
            self.total.bytes -= size
            self.total.count -= 1

    def _free(self) -> Endpoint | None:
        """Return the replica with the least to do, one without a doubt about it first; None where all are busy."""
        free = [r for r in self._replicas if self._busy.get(r, 0) < self.settings.permits]
        return min(free, key=lambda r: (r in self._doubtful, self._busy.get(r, 0)), default=None)
