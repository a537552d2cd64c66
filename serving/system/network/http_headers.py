"""Reads values of HTTP headers, which a peer that is not trusted may have written. Pure."""

import datetime as dt
import email.utils
import re
from collections.abc import Mapping

LONGEST_PAUSE = 3600.0
"""Seconds; a longer pause would look like a standstill."""
_NUMBER = re.compile(r"[0-9]{1,18}")
"""Bounded, as `int` raises ValueError for thousands of digits."""


def number(text: str) -> int | None:
    """Return the number in a header, or None for another text."""
    return int(text) if _NUMBER.fullmatch(text) else None


def retry_after(headers: Mapping[str, str], now: dt.datetime) -> float | None:
    """Return the seconds of Retry-After, a number or a date (RFC 9110 §10.2.3), and an hour at most.

    None without the header, or for another text.
    """
    text = headers.get("Retry-After", "")
    if (seconds := number(text)) is not None:
        return min(float(seconds), LONGEST_PAUSE)
    try:
        seconds_left = (email.utils.parsedate_to_datetime(text) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds_left), LONGEST_PAUSE)
