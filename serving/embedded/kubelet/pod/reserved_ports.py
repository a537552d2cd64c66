"""Reserves a Pod's TCP ports for its user, so that no other can bind them while no container listens."""

import contextlib
import errno
import socket
from collections.abc import Iterable

from serving import errors
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.network import socket_diag, sockets


class ReservedPorts:
    """The reserved ports of one Pod, which has a user of its own.

    They stay reserved while this object holds them or a container listens at them. A container binds them
    through its shim: see `port_binding`.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def reserve(self, identity: PodIdentity, ports: Iterable[int]) -> None:
        """Reserve the ports that are not reserved yet.

        Raises:
            errors.Temporary: `AddressTaken`, another process has bound one, also of all addresses.
            OSError: there are no descriptors left.
        """
        for port in ports:
            if port in self._sockets:
                continue
            try:
                self._sockets[port] = sockets.reserve(identity.address, port, identity.user)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise errors.Temporary("AddressTaken", _taken(identity.address, port)) from error

    def release(self) -> None:
        """Free all ports."""
        for reserved in self._sockets.values():
            reserved.close()
        self._sockets.clear()


def _taken(address: str, port: int) -> str:
    user = None
    with contextlib.suppress(OSError):
        user = socket_diag.listener(address, port)
    who = "a process that does not listen" if user is None else f"a process of user {user}"
    return f"{address}:{port} is taken by {who}, not of this Pod"
