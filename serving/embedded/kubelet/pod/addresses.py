"""Gives every Pod a loopback address, so that all replicas can have the same containerPort."""

import errno
import random
from collections.abc import Iterable

from serving.system import sockets

TRIES = 20
"""Addresses to try until the ports are free; the last is used anyway, and the process fails."""


class Addresses:
    """The addresses of this node's Pods; the agent first calls `take` for the recorded ones."""

    def __init__(self, network: str) -> None:
        self._network = network
        self._taken: dict[str, str] = {}

    def take(self, uid: str, address: str) -> None:
        """Mark the address of a Pod as taken."""
        self._taken[address] = uid

    def release(self, address: str) -> None:
        """Free the address of a Pod that is gone."""
        self._taken.pop(address, None)

    def new(self, uid: str, ports: Iterable[int]) -> str:
        """Return a free address on which no process listens at these ports, and mark it as taken."""
        needed = tuple(ports)
        address = ""
        for attempt in range(TRIES):
            address = self._unused()
            if attempt == TRIES - 1 or all(_is_free(address, port) for port in needed):
                break
        self._taken[address] = uid
        return address

    def _unused(self) -> str:
        while True:
            low, host = random.randrange(256), random.randrange(1, 255)  # noqa: S311 no secret
            address = f"{self._network}.{low}.{host}"
            if address not in self._taken:
                return address


def _is_free(address: str, port: int) -> bool:
    try:
        sockets.try_port(address, port)
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True
