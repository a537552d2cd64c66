"""Requests a fork from a zygote: each connection takes one forked shim, which waits for its specification.

Blocks for milliseconds, or for at most `ANSWER_SECONDS` if the zygote is stuck.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from serving import errors
from serving.system.network import descriptors, sockets

ANSWER_SECONDS = 0.5
"""Longest wait for a fork. A fork takes 5 ms, ten times that on a loaded machine. An ordinary start takes a
second: a stuck zygote delays it by half, and is checked after that (`ZygotePool.check`)."""
_INT_BYTES = 4
"""Size of a descriptor in a message (C's int)."""


@dataclass(frozen=True)
class ForkedProcess:
    """A process that waits for the specification of the run whose shim it becomes."""

    connection: socket.socket
    pidfd: int
    inherited: int
    """Bytes of unreclaimable memory that it shares with the zygote, not charged to its own cgroup."""
    groups: tuple[str, ...]
    """The cgroups in which the container's process waits; empty if it has to join its cgroups."""

    def send(self, specification: bytes, listeners: Sequence[int]) -> None:
        """Make it the shim of a run; it closes the connection after it has recorded the start.

        The caller closes `listeners`, the sockets for the container.

        Raises:
            errors.Temporary: the process is gone, or does not read.
        """
        try:
            timeout = self.connection.gettimeout()
            descriptors.send(self.connection.fileno(), specification, listeners, timeout)
        except OSError as error:
            self.dismiss()
            raise errors.Temporary("ZygoteGone", f"the forked process takes nothing: {error}") from error

    def dismiss(self) -> None:
        """End it without a run."""
        self.connection.close()
        os.close(self.pidfd)


class ForkRequest:
    """A pending request to a zygote; the caller can work until the answer."""

    def __init__(self, directory: Path, name: str, timeout: float = ANSWER_SECONDS) -> None:
        """Connect; neither this nor `result` blocks for longer than `timeout` seconds.

        Raises:
            errors.Temporary: `ZygoteAway`, no zygote of this name listens.
        """
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(timeout)
        try:
            with sockets.short_path(directory / f"{name}.sock") as address:
                self._connection.connect(address)
        except OSError as error:
            self._connection.close()
            raise errors.Temporary("ZygoteAway", f"no zygote listens: {error}") from error

    def result(self) -> ForkedProcess:
        """Return the forked process.

        Raises:
            errors.Temporary: `ZygoteStuck`, there was no valid answer in time.
        """
        pidfds: list[int] = []
        try:
            # Not socket.recv_fds: without the flag, executed containers would inherit the descriptor.
            message, ancillary, _, _ = self._connection.recvmsg(
                4096, socket.CMSG_SPACE(_INT_BYTES), socket.MSG_CMSG_CLOEXEC
            )
            pidfds = [int.from_bytes(data[:_INT_BYTES], sys.byteorder) for _, _, data in ancillary]
            (pidfd,) = pidfds
            answer = orjson.loads(message)
            return ForkedProcess(self._connection, pidfd, int(answer["inherited"]), tuple(answer["groups"]))
        except (OSError, ValueError, KeyError) as error:
            self._connection.close()
            for pidfd in pidfds:
                with contextlib.suppress(OSError):
                    os.close(pidfd)
            raise errors.Temporary("ZygoteStuck", f"the zygote does not fork: {error}") from error
