"""Asks components whether their event loops run, over a Unix socket of each; a hung process cannot answer.

To connect is to ask: no request follows. With each answer a component passes the sockets that the supervisor
keeps for the component's successor, as systemd's descriptor store does. Every process that connects gets
these sockets, so only the owner of the data directory can reach the Unix socket.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from serving.system.network import kept_sockets, sockets
from serving.system.network.kept_sockets import KeptSockets
from serving.system.readable import until_readable

log = logging.getLogger(__name__)

_ANSWER = b"ok\n"


class LivenessAnswer(NamedTuple):
    """The answer of a component."""

    descriptors: list[int]
    """Descriptors of the sockets to keep; the receiver of the answer closes them."""
    is_complete: bool
    """False if the kernel dropped some descriptors, as this process may not open so many files."""

    def pass_to(self, kept: KeptSockets) -> None:
        """Hand the sockets over to `kept`; a complete answer also closes all other kept sockets."""
        if self.is_complete:
            kept.replace(self.descriptors)
        else:
            kept.join(self.descriptors)


@contextlib.asynccontextmanager
async def answering(path: Path, to_pass: Callable[[], Sequence[int]]) -> AsyncIterator[None]:
    """Answer on this event loop while the block runs.

    If the socket cannot be made, as on a full disk, a warning is logged and nothing answers.

    Args:
        path: of the Unix socket.
        to_pass: returns the descriptors that go with an answer.
    """

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket").fileno()
        with (
            contextlib.suppress(OSError),  # the supervisor has gone, or there are no descriptors left
            socket.fromfd(accepted, socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        ):
            socket.send_fds(connection, [_ANSWER], to_pass())
        writer.close()

    path.unlink(missing_ok=True)  # noqa: ASYNC240 of a local file
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with sockets.short_path(path) as address:
            listener.bind(address)
    except OSError as error:
        listener.close()
        log.warning("the supervisor cannot ask whether this process hangs: %s", error)
        yield
        return
    server = await asyncio.start_unix_server(answer, sock=listener)
    try:
        yield
    finally:
        server.close()


async def ask(path: Path, timeout: float) -> LivenessAnswer | None:
    """Return the answer of the process at `path`; None if there is none within `timeout` seconds."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(0)
            async with asyncio.timeout(timeout):
                with sockets.short_path(path) as address:
                    await asyncio.get_running_loop().sock_connect(connection, address)
                await until_readable(connection.fileno())
            return _received(connection)
    except (OSError, TimeoutError):
        return None


def _received(connection: socket.socket) -> LivenessAnswer | None:
    content, descriptors, flags, _ = socket.recv_fds(connection, len(_ANSWER), kept_sockets.MOST_PASSED)
    if content != _ANSWER:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return LivenessAnswer(descriptors, is_complete=not flags & socket.MSG_CTRUNC)
