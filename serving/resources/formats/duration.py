"""Durations of our kinds: a number and one unit."""

import re
from decimal import Decimal

_SECONDS = {
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)")


def seconds(text: str) -> float:
    """Return the duration in seconds: `250ms` is 0.25, `2h` is 7200.

    Raises:
        ValueError: not a duration.
    """
    return float(exact(text))


def exact(text: str) -> Decimal:
    """Return the exact duration in seconds. Raises ValueError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 250ms, 1.5s or 2h")
    return Decimal(match[1]) * _SECONDS[match[2]]
