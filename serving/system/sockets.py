"""TCP ports and Unix sockets of this machine."""

import socket

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket: sockaddr_un.sun_path less its NUL, unix(7)."""


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
