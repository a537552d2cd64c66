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


class ReservedPorts:
    """The reserved ports of all Pods.

    They are reserved while `kept` holds them or a container listens at them. A container binds them through
    its shim: see `port_binding`.
    """

    def __init__(self, kept: KeptSockets, reserve_seconds: float) -> None:
        """`kept` holds the sockets; the first ones are those of the last agent.

        The ports of a Pod that is gone are reserved for `reserve_seconds`: a gateway that hangs meanwhile
        still connects to them.
        """
        self._kept = kept
        self._reserve_seconds = reserve_seconds
        self._places: dict[str, set[Place]] = {}
        """By the address of a Pod."""
        self._ended: dict[Place, float] = {}
        """Places of Pods that are gone, with the times at which they are freed."""

    def adopt(self, identities: Iterable[PodIdentity], now: float) -> None:
        """Take over the last agent's sockets: of these Pods, and for a time those of all others."""
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
            errors.Temporary: `AddressTaken`, another process has bound one, also of all addresses.
            OSError: there are no descriptors left.
        """
        for port in ports:
            # The Pod's address first: without it, all of IPv6 keeps nobody from the address.
            self._reserve(identity, identity.address, port)
            self._reserve(identity, ALL_OF_IPV6, port)

    def _reserve(self, identity: PodIdentity, address: str, port: int) -> None:
        place = Place(_user(identity), address, port)
        if place not in self._kept:
            self._free(ended for ended in self._ended if ended[1:] == place[1:] and address != ALL_OF_IPV6)
            try:
                reserved = _reserved(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise errors.Temporary("AddressTaken", _taken(address, port)) from error
            if reserved is None:
                return
            self._kept.add(reserved)
        self._places.setdefault(identity.address, set()).add(place)

    def release(self, identity: PodIdentity, now: float) -> None:
        """Free all ports of a Pod that is gone, some time from now."""
        self._end(self._places.pop(identity.address, set()), now)

    def free_ended(self, now: float) -> None:
        """Free the ports of Pods that have been gone for long enough."""
        self._free(place for place, due in self._ended.items() if due <= now)

    async def run(self) -> None:
        """Free the ports of Pods that are gone, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.free_ended(clock.monotonic())

    def _end(self, places: Iterable[Place], now: float) -> None:
        self._ended.update(
            (place, now + self._reserve_seconds) for place in places if not self._is_used(place)
        )

    def _free(self, places: Iterable[Place]) -> None:
        """Free places of `_ended`, except those that another Pod of the user has by now."""
        freed = set(places)
        for place in freed:
            del self._ended[place]
        self._kept.retain(lambda place: place not in freed or self._is_used(place))

    def _is_used(self, place: Place) -> bool:
        """Whether a Pod has the place; Pods that share a GPU have one user, and share its ports of all of
        IPv6.
        """
        return any(place in places for places in self._places.values())


def _user(identity: PodIdentity) -> int:
    return os.geteuid() if identity.user is None else identity.user


def _reserved(place: Place) -> socket.socket | None:
    if place.address == ALL_OF_IPV6:
        return sockets.keep_all_of_ipv6(place.port, place.user)
    return sockets.reserve(place.address, place.port, place.user)


def _taken(address: str, port: int) -> str:
    if address == ALL_OF_IPV6:
        return f"[{address}]:{port} is taken by a process, not of this Pod"
    user = None
    with contextlib.suppress(OSError):
        user = socket_diag.listener(address, port)
    who = "a process that does not listen there" if user is None else f"a process of user {user}"
    return f"{address}:{port} is taken by {who}, not of this Pod"
