"""Kept sockets: bound TCP sockets that keep ports from other users. A process passes them to its successor.

The module neither binds nor listens: `sockets` makes the sockets.
"""

import os
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

ALL_OF_IPV6 = "::"
"""Address of the `Place` of every IPv6 socket, whichever address it is bound to: `sockets.keep_all_of_ipv6`
binds a random one."""
MOST_PASSED = 252
"""The most descriptors that pass to another process: those of a message (SCM_MAX_FD, 253), less one for the
output of a component that starts."""


class Place(NamedTuple):
    """A TCP port at an address, which a socket keeps for one user."""

    user: int
    """Id of the user whose sockets may bind the port."""
    address: str
    """A literal IPv4 address, or `ALL_OF_IPV6`."""
    port: int


def place_of(kept: socket.socket) -> Place:
    """Return the place that a bound TCP socket keeps: an IPv6 socket keeps `ALL_OF_IPV6`."""
    address, port = kept.getsockname()[:2]
    address = ALL_OF_IPV6 if kept.family == socket.AF_INET6 else address
    return Place(os.fstat(kept.fileno()).st_uid, address, port)


def first_ports_first(places: Iterable[Place]) -> list[Place]:
    """Order places: the first port of each user, the second port of each, and so on.

    So a Pod with many ports displaces no Pod of another user where not all places fit.
    """
    ports_of_users: dict[int, dict[int, int]] = {}  # by user, the rank of each port: 0 for the first one
    ranked = []
    for place in places:
        ranks = ports_of_users.setdefault(place.user, {})
        ranked.append((ranks.setdefault(place.port, len(ranks)), place))
    return [place for _, place in sorted(ranked, key=lambda entry: entry[0])]


class KeptSockets:
    """One socket for each place; `close` frees all of them."""

    def __init__(self, descriptors: Iterable[int] = ()) -> None:
        """Take over the bound TCP sockets of these descriptors."""
        self._sockets: dict[Place, socket.socket] = {}
        self.join(descriptors)

    def __contains__(self, place: Place) -> bool:
        return place in self._sockets

    @property
    def places(self) -> list[Place]:
        """The places that the sockets keep, in the order of `first_ports_first`."""
        return first_ports_first(self._sockets)

    def add(self, kept: socket.socket) -> Place:
        """Take over a bound TCP socket, and return its place; an older socket of the place is closed."""
        place = place_of(kept)
        if (older := self._sockets.get(place)) is not None:
            older.close()
        self._sockets[place] = kept
        return place

    def join(self, descriptors: Iterable[int]) -> None:
        """Take over the sockets of these descriptors, and keep the sockets of other places."""
        for descriptor in descriptors:
            self.add(_taken_over(descriptor))

    def replace(self, descriptors: Iterable[int]) -> None:
        """Take over the sockets of these descriptors, then close those of all other places."""
        newest = {self.add(_taken_over(descriptor)) for descriptor in descriptors}
        self.retain(newest.__contains__)

    def retain(self, is_kept: Callable[[Place], bool]) -> None:
        """Close the sockets of places for which the predicate is False."""
        for place in [place for place in self._sockets if not is_kept(place)]:
            self._sockets.pop(place).close()

    def to_pass(self) -> list[int]:
        """Return the descriptors for another process, at most `MOST_PASSED`; they remain this object's."""
        return [self._sockets[place].fileno() for place in self.places[:MOST_PASSED]]

    def close(self) -> None:
        """Close all sockets."""
        self.retain(lambda _: False)


def _taken_over(descriptor: int) -> socket.socket:
    taken_over = socket.socket(fileno=descriptor)
    taken_over.set_inheritable(False)  # a message makes it inheritable
    return taken_over
