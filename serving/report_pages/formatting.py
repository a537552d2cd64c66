"""Formats numbers and times for people: with a unit, and no more digits than are significant.

A number that is not finite becomes a dash, never `nan`.
"""

import datetime as dt
import math

DIGITS = 3
"""Significant digits: measurements of latency and throughput repeat to one percent at best."""
DASH = "\u2013"
"""Shown instead of a missing number."""
_NO_BREAK = "\u00a0"
"""Between a number and its unit."""
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_SMALLEST_SHARE = 1e-6
"""Smaller shares are shown as 0 %."""
_MAX_DIGITS = 15
"""Numbers with more digits before the point are shown with an exponent."""


def number(value: float, digits: int = DIGITS) -> str:
    """Return `0.0123`, `12.3`, `1,234` or `1.23e-06`: no decimals beyond `digits` significant digits."""
    if not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    power = f"{value:.{digits - 1}e}"
    exponent = int(power.partition("e")[2])
    if not -4 <= exponent < _MAX_DIGITS:
        return power
    if exponent >= digits:
        return f"{value:,.0f}"
    text = f"{float(power):.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """Return `850 µs`, `12.3 ms`, `1.2 s`, `4 min 30 s` or `2 h 5 min`."""
    if not math.isfinite(seconds):
        return DASH
    if seconds == 0:
        return f"0{_NO_BREAK}s"
    rounded = float(f"{seconds:.{DIGITS - 1}e}")  # 59.99 s is a minute, and 999.9 ms a second
    if abs(rounded) >= 60:
        return _long(round(seconds))
    unit, scale = next(((u, s) for u, s in _SECONDS if abs(rounded) >= s), _SECONDS[-1])
    return number(seconds / scale) + _NO_BREAK + unit


def _long(seconds: int) -> str:
    minutes, remainder = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else remainder, "s")]
    return " ".join(f"{count}{_NO_BREAK}{unit}" for count, unit in parts if count)


def size(count: float) -> str:
    """Return an amount of memory: `512 MiB`."""
    if not math.isfinite(count):
        return DASH
    for scale, unit in _BYTES:
        if abs(count) >= scale:
            return f"{number(count / scale)}{_NO_BREAK}{unit}"
    return f"{number(count)}{_NO_BREAK}B"


def percent(share: float) -> str:
    """Return a share between 0 and 1 as `12.3 %`; shares below a millionth are `0 %`."""
    if not math.isfinite(share):
        return DASH
    value = share * 100 if abs(share) >= _SMALLEST_SHARE else 0.0
    digits = 2 if abs(value) < 10 else 3
    return f"{number(value, digits)}{_NO_BREAK}%"


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 trial` or `2 trials`; `plural` defaults to the singular with an `s`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def listed(words: list[str], conjunction: str = "and") -> str:
    """Return `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def times(factor: float) -> str:
    """Return a factor as `1.4 times`."""
    return f"{number(factor, 2)} times"


def moment(text: str) -> str:
    """Return an RFC 3339 time as `22 November 2026, 04:25 UTC`."""
    time = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"
