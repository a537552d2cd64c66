"""Asks components whether their event loops run, over a Unix socket of each; a hung process cannot answer."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from serving.system.network import sockets

log = logging.getLogger(__name__)

_ANSWER = b"ok\n"


@contextlib.asynccontextmanager
async def answering(path: Path) -> AsyncIterator[None]:
    """Answer on this event loop while the block runs; on a full disk there is no socket, and no answer."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_ANSWER)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
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


async def answers(path: Path, timeout: float) -> bool:
    """Whether the process that listens at `path` answers within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            with sockets.short_path(path) as address:
                reader, writer = await asyncio.open_unix_connection(address)
            try:
                return await reader.readline() == _ANSWER
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
