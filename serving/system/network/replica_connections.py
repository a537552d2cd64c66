"""Connections to replicas by TCP, with `sockets.GATEWAY_MARK` where this process may set it.

The served port of a replica may drop packets without the mark.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from serving.system.network import sockets

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""Family, type, protocol, canonical name and address, as of getaddrinfo(3)."""
_PIECE_BYTES = 64 * 1024
_numbers = itertools.count()


def is_marked(host: str) -> bool:
    """Return whether connections to the replica at this literal address have `sockets.GATEWAY_MARK`.

    Only replicas of this machine require the mark; in other networks marks have other meanings.
    """
    return ipaddress.ip_address(host).is_loopback and sockets.can_mark()


def new_socket(address: AddressInfo) -> socket.socket:
    """Return a new socket for a connection to a replica's address."""
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    if is_marked(where[0]):
        sockets.mark(made)
    return made


async def connect(host: str, port: int) -> socket.socket:
    """Return a connected, non-blocking socket to the replica at this literal address.

    Raises:
        OSError: the replica cannot be reached.
    """
    made = new_socket((sockets.family(host), socket.SOCK_STREAM, 0, "", (host, port)))
    try:
        made.settimeout(0)
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


@contextlib.asynccontextmanager
async def tunnel(folder: Path, host: str, port: int) -> AsyncIterator[str]:
    """Connect to a replica, and yield the path of a Unix socket, whose first connection reaches the replica.

    For clients, such as gRPC's, that make their sockets themselves and cannot set the mark on them. The path
    is valid in this process alone.

    Args:
        folder: where no other process makes tunnels; made, for this user only, if it is absent. A tunnel
            that a killed process left there is replaced.
        host: the replica's literal address.
        port: the replica's port.

    Raises:
        OSError: the replica cannot be reached, or the socket cannot be made.
    """
    with contextlib.ExitStack() as opened:
        replica = opened.enter_context(await connect(host, port))
        entrance = opened.enter_context(contextlib.ExitStack())
        listener, path = entrance.enter_context(_listening(folder))
        passing = asyncio.create_task(_pass_on(listener, entrance, replica))
        try:
            yield path
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)


@contextlib.contextmanager
def _listening(folder: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield a listening Unix socket, and a path to it that fits into an address (`sockets.short_path`)."""
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"tunnel-{next(_numbers)}"
    path.unlink(missing_ok=True)
    with sockets.short_path(path) as address, socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(0)
        listener.bind(address)
        try:
            listener.listen(1)
            yield listener, address
        finally:
            path.unlink(missing_ok=True)


async def _pass_on(listener: socket.socket, entrance: contextlib.ExitStack, replica: socket.socket) -> None:
    """Accept one connection, remove the Unix socket (`entrance`), and copy both ways until both sides end."""
    client, _ = await asyncio.get_running_loop().sock_accept(listener)
    entrance.close()
    with client:
        await asyncio.gather(_copy(client, replica), _copy(replica, client))


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source's end, and end the sink then."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # one connection was reset: the shutdown below ends the other one
        while piece := await loop.sock_recv(source, _PIECE_BYTES):
            await loop.sock_sendall(sink, piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
