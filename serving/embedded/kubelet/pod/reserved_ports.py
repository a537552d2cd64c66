"""Reserves Pods' TCP ports for their users, so that no other can bind them while no container listens."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterable

from serving import errors
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.network import socket_diag, sockets
from serving.system.network.kept_sockets import ALL_OF_IPV6, KeptSockets, Place


class ReservedPorts:
    """The reserved ports of all Pods.

    They stay reserved while `kept` holds them or a container listens at them. A container binds them through
    its shim: see `port_binding`.
    """

    def __init__(self, kept: KeptSockets) -> None:
        """`kept` holds the sockets; the first ones are those of the last agent."""
        self._kept = kept
        self._places: dict[str, set[Place]] = {}
        """By the address of a Pod."""

    def adopt(self, identities: Iterable[PodIdentity]) -> None:
        """Take over the last agent's sockets of these Pods, and free those of all others."""
        for identity in identities:
            self._places[identity.address] = {
                place
                for place in self._kept.places
                if place.user == _user(identity) and place.address in (identity.address, ALL_OF_IPV6)
            }
        self._release_unused()

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

    def release(self, identity: PodIdentity) -> None:
        """Free all ports of a Pod that is gone."""
        self._places.pop(identity.address, None)
        self._release_unused()

    def _release_unused(self) -> None:
        """Free what no Pod has; Pods that share a GPU have one user, and share its ports of all of IPv6."""
        self._kept.retain(set().union(*self._places.values()).__contains__)


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
    who = "a process that does not listen" if user is None else f"a process of user {user}"
    return f"{address}:{port} is taken by {who}, not of this Pod"
