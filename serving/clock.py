"""Reads the clock, and formats and parses times. Modules that decide take `now` as an argument."""

import datetime as dt
import re
import time

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)", re.ASCII)
"""The form of a time; `fromisoformat` also takes dates alone, and times without a zone."""


def now() -> dt.datetime:
    """Return the wall-clock time in UTC."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251


def monotonic() -> float:
    """Return seconds on a clock that never goes back, for durations only."""
    return time.monotonic()


def rfc3339(moment: dt.datetime) -> str:
    """Format as Kubernetes does for metadata: UTC, whole seconds, `Z`."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: dt.datetime) -> str:
    """Format as Kubernetes' MicroTime (Leases, Events)."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> dt.datetime:
    """Parse an RFC 3339 time.

    Raises:
        ValueError: `text` is not RFC 3339.
    """
    if _RFC3339.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return dt.datetime.fromisoformat(text)
