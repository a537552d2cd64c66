"""TCP ports and Unix sockets of this machine."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket: sockaddr_un.sun_path less its NUL, unix(7)."""


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of the same Unix socket that is short enough for an address, in this process and for now."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def family(host: str) -> socket.AddressFamily:
    """Return the address family of a literal address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def try_port(host: str, port: int) -> int:
    """Bind a TCP port and release it again; return its number (0 asks for any free one).

    Raises:
        OSError: it cannot be bound, for the reason of its `errno`.
    """
    with socket.socket(family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])
