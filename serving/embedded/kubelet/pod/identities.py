"""Gives every Pod a loopback address, so that all replicas can have the same containerPort, and a user id."""

import errno
import random
from collections.abc import Iterable

from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.isolation.user_ids import UserIds
from serving.system.network import sockets

TRIES = 20
"""Most addresses to try until all ports are free; the last one is used anyway, and its container may fail."""


class Identities:
    """The identities of this node's Pods; a restarted agent first calls `occupy` for the recorded ones."""

    def __init__(self, network: str, user_ids: UserIds | None) -> None:
        """`network` are the first two octets of addresses; without `user_ids`, users are the agent's."""
        self._network = network
        self._user_ids = user_ids
        self._taken: dict[str, PodIdentity] = {}

    def occupy(self, identity: PodIdentity) -> None:
        """Mark the identity of a Pod as taken."""
        self._taken[identity.address] = identity

    def release(self, identity: PodIdentity) -> None:
        """Free the address of a Pod that is gone."""
        self._taken.pop(identity.address, None)

    def new(self, ports: Iterable[int], *, user: int | None, socket_port: int | None) -> PodIdentity:
        """Return an identity, and mark it as taken.

        Args:
            ports: TCP ports that should be free at the address.
            user: the user id; None for a new one, which no process and no file has (without `user_ids`: the
                agent's).
            socket_port: the containerPort that listens on a Unix socket; None if there is none.

        Raises:
            errors.Temporary: no user id is free.
            OSError: the disk is full.
        """
        if user is None and self._user_ids is not None:
            user = self._user_ids.new(i.user for i in self._taken.values() if i.user is not None)
        identity = PodIdentity(self._free_address(tuple(ports)), user, socket_port)
        self.occupy(identity)
        return identity

    def _free_address(self, ports: Iterable[int]) -> str:
        address = ""
        for _ in range(TRIES):
            address = self._unused_address()
            if all(_is_free(address, port) for port in ports):
                break
        return address

    def _unused_address(self) -> str:
        while True:
            low, host = random.randrange(256), random.randrange(1, 255)  # noqa: S311 no secret
            address = f"{self._network}.{low}.{host}"
            if address not in self._taken:
                return address


def _is_free(address: str, port: int) -> bool:
    try:
        sockets.try_port(address, port)
    except OSError as error:
        # Another reason, such as a port that only root may bind, does not depend on the address.
        return error.errno != errno.EADDRINUSE
    return True
