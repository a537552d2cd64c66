"""Random IPv6 addresses that no host has, for sockets that are bound and that nobody reaches.

An address is used once, and never derived from data that other users know: whoever bound it first would
disarm a socket that is to conflict with others. Imports little, as `socket_diag`.
"""

import _socket
import os

IPV6_FREEBIND = 78
"""<linux/in6.h>: bind an address that no interface has."""
_PREFIX = bytes((1, 0, 0, 0, 0, 0, 0, 0))
"""100::/64, the discard-only prefix (RFC 6666), which no network routes to a host."""


def bind(unbound: _socket.socket, port: int) -> None:
    """Bind a TCP socket of IPv6 to a port of an address that cannot be guessed.

    Raises:
        OSError: a process has the port of all IPv6 addresses.
    """
    unbound.setsockopt(_socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    unbound.bind((_socket.inet_ntop(_socket.AF_INET6, _PREFIX + os.urandom(8)), port))
