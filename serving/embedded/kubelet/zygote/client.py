"""Asks a zygote for a process: one connection is one exit recorder, which then waits for its specification.

Blocks for milliseconds, or for `ANSWER_SECONDS` where the zygote is stuck; it is never waited for longer than that.
"""

import contextlib
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from serving import errors

ANSWER_SECONDS = 0.5
"""A fork takes 5 ms, and on a loaded machine ten times that; an ordinary start takes a second, so that a zygote which
does not answer makes it half as slow again, once."""
_INT = 4
"""Bytes of a descriptor's number in a message (C's int)."""


@dataclass(frozen=True)
class Forked:
    """A process that waits to become an exit recorder."""

    connection: socket.socket
    handle: int
    """Its pidfd."""
    inherited: int
    """Bytes of unreclaimable memory that it shares with the zygote; no cgroup of its own is charged for them."""
    groups: tuple[str, ...]
    """The cgroups in which the container's process waits; empty where it is to join some."""

    def give(self, specification: bytes) -> None:
        """Let it become the recorder of this run; it closes the connection when the start is recorded.

        Raises:
            errors.Temporary: it has gone, or reads nothing.
        """
        try:
            self.connection.sendall(specification)
            self.connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.dismiss()
            raise errors.Temporary("ZygoteGone", f"the forked process takes nothing: {error}") from error

    def dismiss(self) -> None:
        """Let it end: nothing is wanted of it."""
        self.connection.close()
        os.close(self.handle)


class Asked:
    """A question that is on its way, so that other work can be done until it is answered."""

    def __init__(self, directory: Path, name: str, patience: float = ANSWER_SECONDS) -> None:
        """Connect; nothing here takes longer than `patience` seconds.

        Raises:
            errors.Temporary: `ZygoteAway`, none listens there.
        """
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(patience)
        try:
            place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._connection.connect(
                    f"/proc/self/fd/{place}/{name}.sock"
                )  # longer than an address can be
            finally:
                os.close(place)
        except OSError as error:
            self._connection.close()
            raise errors.Temporary("ZygoteAway", f"no zygote listens: {error}") from error

    def answer(self) -> Forked:
        """Return the process.

        Raises:
            errors.Temporary: `ZygoteStuck`, no sensible answer in time.
        """
        handles: list[int] = []
        try:
            # Not by socket.recv_fds: it drops the flag, and containers that are executed would inherit the descriptor.
            told, ancillary, _, _ = self._connection.recvmsg(
                4096, socket.CMSG_SPACE(_INT), socket.MSG_CMSG_CLOEXEC
            )
            handles = [int.from_bytes(data[:_INT], sys.byteorder) for _, _, data in ancillary]
            (handle,) = handles
            said = orjson.loads(told)
            return Forked(self._connection, handle, int(said["inherited"]), tuple(said["groups"]))
        except (OSError, ValueError, KeyError) as error:
            self._connection.close()
            for handle in handles:
                with contextlib.suppress(OSError):
                    os.close(handle)
            raise errors.Temporary("ZygoteStuck", f"the zygote does not fork: {error}") from error
