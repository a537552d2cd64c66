"""Binds IPv6 sockets to random addresses that no host has, so that no connection reaches them.

Such a socket, without SO_REUSEPORT and SO_REUSEADDR, keeps its port at all IPv6 addresses (`::`) from other
sockets (`sockets.keep_all_of_ipv6`). Where a container binds `::`, which the node keeps, its shim binds the
container's socket to such an address instead: a Pod is reached by its IPv4 address alone. Each socket gets a
new random address, as another user could bind a predictable address first.

`socket` is not imported, as it costs a megabyte in every container shim; `_socket` is its core.
"""

import _socket
import os

IPV6_FREEBIND = 78
"""<linux/in6.h>: option to bind an address that no interface has."""
_PREFIX = bytes((1, 0, 0, 0, 0, 0, 0, 0))
"""100::/64, the discard-only prefix (RFC 6666), which no network routes to a host."""


def bind(unbound: _socket.socket, port: int) -> None:
    """Bind an IPv6 TCP socket to a port of a new random address.

    Raises:
        OSError: a socket is bound to this port of all IPv6 addresses (`::`).
    """
    unbound.setsockopt(_socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    unbound.bind((_socket.inet_ntop(_socket.AF_INET6, _PREFIX + os.urandom(8)), port))
