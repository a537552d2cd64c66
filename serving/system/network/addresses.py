"""URLs in messages: without credentials. Pure."""

import urllib.parse

INVALID = "an invalid URL with credentials (`/`, `?` and `#` of a password must be percent-encoded)"
"""Replaces a URL that has an `@`, but not as the end of credentials."""


def without_credentials(url: str) -> str:
    """Return a URL without its user and password, or `INVALID` where these have no certain end."""
    if "@" not in url:
        return url
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        return INVALID
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return INVALID if "@" in shown else shown
