"""Durations as our kinds write them: a number and one unit."""

import re

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)")


def seconds(text: str) -> float:
    """Return the duration in seconds: `250ms` is 0.25, `2h` is 7200.

    Raises:
        ValueError: not a duration.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 250ms, 1.5s or 2h")
    return float(match[1]) * _SECONDS[match[2]]
