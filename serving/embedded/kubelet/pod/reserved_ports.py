"""Reserves Pods' TCP ports for their users, so that no other can bind them while no container listens."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterable

from serving import clock, errors
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.network import socket_diag, sockets
from serving.system.network.kept_sockets import ALL_OF_IPV6, KeptSockets, Place

_SWEEP_SECONDS = 1.0
"""Between checks for ports to free."""


class ReservedPorts:
    """The reserved ports of all Pods.

    Each port has two places: at the Pod's IPv4 address, and at all IPv6 addresses (`ALL_OF_IPV6`), as a
    socket bound to `::` would get the connections to the IPv4 address too. A place is reserved while `kept`
    has a socket for it or a container listens there. A container binds its ports through its shim: see
    `container/port_binding.py`.
    """

    def __init__(self, kept: KeptSockets, reserve_seconds: float) -> None:
        """Take over the sockets.

        Args:
            kept: holds the sockets, at first those of the last agent.
            reserve_seconds: how long the ports of a Pod that is gone remain reserved, as a gateway that hangs
                meanwhile still connects to them.
        """
        self._kept = kept
        self._reserve_seconds = reserve_seconds
        self._places: dict[str, set[Place]] = {}
        """The places of every Pod, by the Pod's address."""
        self._ended: dict[Place, float] = {}
        """The times at which the places of Pods that are gone are freed, in seconds of a monotonic clock."""

    def adopt(self, identities: Iterable[PodIdentity], now: float) -> None:
        """Take over the last agent's sockets: those of these Pods, and for `reserve_seconds` all others."""
        for identity in identities:
            self._places[identity.address] = {
                place
                for place in self._kept.places
                if place.user == _user(identity) and place.address in (identity.address, ALL_OF_IPV6)
            }
        self._end(self._kept.places, now)

    def reserve(self, identity: PodIdentity, ports: Iterable[int]) -> None:
        """Reserve the ports that are not reserved yet.

        Raises:
            errors.Temporary: `AddressTaken`, another process has bound one, at the Pod's address or at all
                addresses.
            OSError: there are no descriptors left.
        """
        for port in ports:
            # The Pod's address first: if it cannot be reserved, the place of IPv6 protects nothing.
            self._reserve(identity, identity.address, port)
            self._reserve(identity, ALL_OF_IPV6, port)

    def _reserve(self, identity: PodIdentity, address: str, port: int) -> None:
        place = Place(_user(identity), address, port)
        if place not in self._kept:
            if address != ALL_OF_IPV6:  # there every user can have a place of the same port
                # An earlier Pod at this address, of another user, has the place until its time is up.
                self._free(ended for ended in self._ended if (ended.address, ended.port) == (address, port))
            try:
                reserved = _reserved(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise errors.Temporary("AddressTaken", _taken(address, port)) from error
            if reserved is None:  # the kernel has no IPv6
                return
            self._kept.add(reserved)
        self._places.setdefault(identity.address, set()).add(place)

    def release(self, identity: PodIdentity, now: float) -> None:
        """Free all ports of a Pod that is gone, `reserve_seconds` from now."""
        self._end(self._places.pop(identity.address, set()), now)

    def free_ended(self, now: float) -> None:
        """Free the ports of Pods that have been gone for `reserve_seconds`."""
        self._free(place for place, due in self._ended.items() if due <= now)

    async def run(self) -> None:
        """Free the ports of Pods that are gone, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.free_ended(clock.monotonic())

    def _end(self, places: Iterable[Place], now: float) -> None:
        """Let the places that no Pod has be freed `reserve_seconds` from now."""
        self._ended.update(
            (place, now + self._reserve_seconds) for place in places if not self._is_used(place)
        )

    def _free(self, places: Iterable[Place]) -> None:
        """Remove places from `_ended`, and close the sockets of those that no other Pod of the user has."""
        freed = set(places)
        for place in freed:
            del self._ended[place]
        self._kept.retain(lambda place: place not in freed or self._is_used(place))

    def _is_used(self, place: Place) -> bool:
        """Whether a Pod has the place. Pods that share a GPU have one user, and so the same places at
        `ALL_OF_IPV6`.
        """
        return any(place in places for places in self._places.values())


def _user(identity: PodIdentity) -> int:
    """Return the user id of the Pod's processes."""
    return os.geteuid() if identity.user is None else identity.user


def _reserved(place: Place) -> socket.socket | None:
    """Return a socket that keeps the place; None for IPv6 where the kernel has none."""
    if place.address == ALL_OF_IPV6:
        return sockets.keep_all_of_ipv6(place.port, place.user)
    return sockets.reserve(place.address, place.port, place.user)


def _taken(address: str, port: int) -> str:
    """Return the message for a place that another process has."""
    if address == ALL_OF_IPV6:
        return f"[{address}]:{port} is taken by a process, not of this Pod"
    user = None
    with contextlib.suppress(OSError):
        user = socket_diag.listener(address, port)
    who = "a process that does not listen there" if user is None else f"a process of user {user}"
    return f"{address}:{port} is taken by {who}, not of this Pod"
