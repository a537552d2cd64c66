"""Durations as kubectl shows them: k8s.io/apimachinery/pkg/util/duration/duration.go, HumanDuration."""

from datetime import datetime
from typing import NamedTuple

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


class _Form(NamedTuple):
    """How durations below a limit are written: in one unit, or in a unit and a smaller one."""

    below: int
    """The limit in seconds."""
    unit: int
    """Seconds of the unit."""
    symbol: str
    rest_unit: int = 0
    """Seconds of the smaller unit; 0: the rest is not shown."""
    rest_symbol: str = ""


_FORMS = (
    _Form(2 * _MINUTE, 1, "s"),
    _Form(10 * _MINUTE, _MINUTE, "m", 1, "s"),
    _Form(3 * _HOUR, _MINUTE, "m"),
    _Form(8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    _Form(2 * _DAY, _HOUR, "h"),
    _Form(8 * _DAY, _DAY, "d", _HOUR, "h"),
    _Form(2 * _YEAR, _DAY, "d"),
    _Form(8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human(seconds: float) -> str:
    """Return a duration with two or three significant digits: `90s`, `5m30s`, `3d4h`, `2y31d`."""
    if seconds <= -2:
        return "<invalid>"
    rounded = max(int(seconds), 0)
    for form in _FORMS:
        if rounded < form.below:
            rest = rounded % form.unit // form.rest_unit if form.rest_unit else 0
            return f"{rounded // form.unit}{form.symbol}" + (f"{rest}{form.rest_symbol}" if rest else "")
    return f"{rounded // _YEAR}y"
