"""Cron expressions: five fields in the local time of a zone. Pure.

Daylight saving follows Vixie's cron. A skipped time of day occurs when the clock has skipped it, and a
repeated time of day occurs the first time only. With the hour `*`, a skipped time does not occur and a
repeated time occurs twice, because the expression then selects minutes of the clock.
"""

import calendar
import datetime as dt
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name.lower(): (number + 1) % 7 for number, name in enumerate(calendar.day_abbr)}
_LONGEST = {month: 29 if month == 2 else calendar.monthrange(2001, month)[1] for month in range(1, 13)}
"""Days that a month can have."""
_YEARS = 8
"""Any span of this many years has a 29 February, also across a year such as 2100 without one."""
_ITEM = re.compile(r"(\*|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]+))?")


@dataclass(frozen=True, slots=True)
class _CronField:
    """One of the five fields: its name in messages, its bounds, and its names of values, such as `mon`."""

    name: str
    least: int
    most: int
    names: tuple[tuple[str, int], ...] = ()

    def values(self, text: str) -> frozenset[int]:
        """Return the values that the text of the field selects.

        Raises:
            ValueError: the text is malformed, or a value is out of bounds.
        """
        values: set[int] = set()
        for item in text.split(","):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise ValueError(f"{item!r} is no {self.name}")
            first, last, step = match.groups()
            start = self.least if first == "*" else self._number(first)
            if last:
                stop = self._number(last)
            elif first == "*" or step:  # 5/20 is 5-59/20
                stop = self.most
            else:
                stop = start
            if (first == "*" and last) or stop < start:
                raise ValueError(f"{item!r} is no range of {self.name}s")
            if step is not None and int(step) == 0:
                raise ValueError(f"the step in {item!r} must be at least 1")
            values.update(range(start, stop + 1, int(step or 1)))
        return frozenset(values)

    def _number(self, text: str) -> int:
        value = dict(self.names).get(text)
        if value is None:
            value = int(text) if text.isdigit() else -1
        if not self.least <= value <= self.most:
            raise ValueError(f"{text!r} is no {self.name} from {self.least} to {self.most}")
        return value


_FIELDS = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of month", 1, 31),
    _CronField("month", 1, 12, tuple(_MONTHS.items())),
    _CronField("day of week", 0, 7, tuple(_DAYS.items())),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression."""

    text: str
    minutes: tuple[int, ...]
    """Minutes of the day, in order."""
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    either_day: bool
    """Neither day of month nor day of week begins with `*`, and either of them suffices."""
    every_hour: bool
    """The hour is `*` or `*/n`: the expression selects minutes of the clock."""

    @classmethod
    def parse(cls, text: str) -> "Cron":
        """Return the expression.

        Raises:
            ValueError: the number of fields is not five, a field is out of range, or the day never occurs.
        """
        fields = text.lower().split()
        if len(fields) != len(_FIELDS):
            raise ValueError(
                f"has {len(fields)} fields and not 5: minute, hour, day of month, month, day of week"
            )
        minutes, hours, days, months, weekdays = (
            field.values(part) for field, part in zip(_FIELDS, fields, strict=True)
        )
        any_weekday = fields[4].startswith("*")
        if any_weekday and min(days) > max(_LONGEST[month] for month in months):
            raise ValueError("no such day of such a month ever comes")
        return cls(
            text,
            minutes=tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)),
            days=days,
            months=months,
            weekdays=frozenset(day % 7 for day in weekdays),  # 7 is Sunday too
            either_day=not any_weekday and not fields[2].startswith("*"),
            every_hour=fields[1].startswith("*"),
        )

    def latest(self, zone: ZoneInfo, now: float) -> float | None:
        """Return the last occurrence at or before `now`, in Unix seconds; None: none in eight years."""
        # The two times of a repeated time of day differ in `fold`; the second one counts with the hour `*`.
        folds = (0, 1) if self.every_hour else (0,)
        moments = [self._latest(zone, now, fold) for fold in folds]
        return max((moment for moment in moments if moment is not None), default=None)

    def _latest(self, zone: ZoneInfo, now: float, fold: int) -> float | None:
        """Return `latest` with the first (fold 0) or the second (fold 1) time of repeated times of day."""
        # From the next day on, because the clock may have been set back over midnight.
        newest = dt.datetime.fromtimestamp(now, zone).date() + dt.timedelta(days=1)
        for day in self._days_back(newest):
            count = bisect_right(self.minutes, now, key=lambda minute: _moment(day, minute, zone, fold).time)
            for minute in reversed(self.minutes[:count]):
                moment = _moment(day, minute, zone, fold)
                if not (moment.is_skipped and self.every_hour):
                    return moment.time
        return None

    def _days_back(self, newest: dt.date) -> Iterator[dt.date]:
        """Yield the days of the expression from `newest` back, over `_YEARS`."""
        day = newest
        oldest = day - dt.timedelta(days=_YEARS * 366)
        while day > oldest:
            if day.month not in self.months:
                day = day.replace(day=1)
            elif self._has_day(day):
                yield day
            day -= dt.timedelta(days=1)

    def _has_day(self, day: dt.date) -> bool:
        parts = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return any(parts) if self.either_day else all(parts)


class _Moment(NamedTuple):
    """The time of a minute of a local day."""

    time: float
    """Unix seconds; of a skipped minute, when the clock skips it."""
    is_skipped: bool


def _moment(day: dt.date, minute: int, zone: ZoneInfo, fold: int) -> _Moment:
    """Return the time of a minute of a local day.

    With fold 1, a repeated minute has its second time. A later minute never has an earlier time, as the
    bisection in `Cron._latest` needs.
    """
    wall = dt.datetime.combine(day, dt.time(minute // 60, minute % 60, fold=fold))
    moment = wall.replace(tzinfo=zone).timestamp()
    if dt.datetime.fromtimestamp(moment, zone).replace(tzinfo=None) == wall:
        return _Moment(moment, is_skipped=False)
    # The two folds of a skipped minute are times on both sides of the change.
    before, after = sorted(wall.replace(tzinfo=zone, fold=side).timestamp() for side in (0, 1))
    return _Moment(_change(zone, int(before), int(after)), is_skipped=True)


def _change(zone: ZoneInfo, before: int, after: int) -> float:
    """Return the time of the change of the zone's offset between two times, all in Unix seconds."""
    old = dt.datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if dt.datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return float(after)
