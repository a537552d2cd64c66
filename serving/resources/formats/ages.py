"""Durations as kubectl shows them: k8s.io/apimachinery/pkg/util/duration/duration.go, HumanDuration."""

from datetime import datetime

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


def since(moment: str | None, now: datetime) -> str:
    """Return the age of an RFC 3339 time, or `<unknown>`."""
    if not moment:
        return UNKNOWN
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return UNKNOWN
    return human((now - then).total_seconds())


def between(start: str, end: str) -> str:
    """Return the duration between two RFC 3339 times."""
    return human((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


_FORMS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Limit in seconds, unit, name of the unit, unit of the rest (0: not shown), name of that unit."""


def human(seconds: float) -> str:
    """Return a duration with two or three significant digits: `90s`, `5m30s`, `3d4h`, `2y31d`."""
    if seconds <= -1:
        return "<invalid>"
    rounded = max(int(seconds), 0)
    for below, unit, name, rest_unit, rest_name in _FORMS:
        if rounded < below:
            rest = rounded % unit // rest_unit if rest_unit else 0
            return f"{rounded // unit}{name}" + (f"{rest}{rest_name}" if rest else "")
    return f"{rounded // _YEAR}y"
