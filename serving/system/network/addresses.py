"""Addresses in URLs, and URLs in messages: without credentials. Pure."""

import ipaddress
import urllib.parse

INVALID = "an invalid URL with credentials (`/`, `?` and `#` of a password must be percent-encoded)"
"""Shown instead of a URL whose `@` may not end its credentials: the rest may be a part of the password."""


def without_credentials(url: str) -> str:
    """Return a URL without its user and password, or `INVALID` where the end of the two is not certain."""
    if "@" not in url:
        return url
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        return INVALID
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return INVALID if "@" in shown else shown


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether a listener on this literal address listens on every one."""
    return ipaddress.ip_address(host).is_unspecified


def is_loopback(host: str) -> bool:
    """Whether a host without port is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def local(host: str) -> str:
    """Return the address by which its own machine reaches a listener on this literal address."""
    if not is_wildcard(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"
