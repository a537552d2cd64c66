"""Random IPv6 addresses that no host has, for sockets that only conflict with those of all addresses.

An address is used once, and never derived from data that other users know: whoever bound it first would
disarm the socket.
"""

import ipaddress
import secrets

_PREFIX = ipaddress.IPv6Network("100::/64")
"""The discard-only prefix (RFC 6666), which no network routes to a host."""


def random_address() -> str:
    """Return an address that cannot be guessed."""
    return str(_PREFIX[secrets.randbits(_PREFIX.max_prefixlen - _PREFIX.prefixlen)])
