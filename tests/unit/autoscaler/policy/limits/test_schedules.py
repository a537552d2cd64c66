import datetime as dt
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policy.limits.cron import Cron
from autoscaler.policy.limits.schedules import Schedule, bounds_at

ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")]
BERLIN = ZONES[0]
TURNED = [dt.date(2026, *day) for day in ((3, 29), (10, 25), (3, 8), (11, 1), (4, 5), (10, 4))]
"""Days on which one of these clocks is turned."""


def at(*parts: int, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return dt.datetime(*parts, tzinfo=zone, fold=fold).timestamp()  # type: ignore[arg-type, misc]


def schedule(
    start: str,
    end: str = "",
    *,
    name: str = "s",
    hours: float | None = None,
    zone: ZoneInfo = BERLIN,
    least: int | None = None,
    most: int | None = None,
) -> Schedule:
    until = Cron.parse(end) if end else None
    return Schedule(name, Cron.parse(start), zone, until, hours and hours * 3600, minimum=least, maximum=most)


OFFICE = schedule("0 8 * * mon-fri", "0 18 * * mon-fri", name="office", least=4, most=20)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (at(2026, 6, 15, 7, 59), (1, 10, "")),
        (at(2026, 6, 15, 8, 0), (4, 20, "office")),
        (at(2026, 6, 15, 17, 59), (4, 20, "office")),
        (at(2026, 6, 15, 18, 0), (1, 10, "")),
        (at(2026, 6, 14, 12, 0), (1, 10, "")),
    ],
)
def test_a_schedules_bounds_hold_from_its_start_until_its_end(
    now: float, expected: tuple[int, int, str]
) -> None:
    assert bounds_at([OFFICE], 1, 10, now) == expected


def test_a_night_may_lower_the_minimum_and_lasts_over_midnight() -> None:
    night = schedule("0 22 * * *", "0 6 * * *", name="night", least=0)
    assert bounds_at([night], 2, 10, at(2026, 6, 15, 3)) == (0, 10, "night")
    assert bounds_at([night], 2, 10, at(2026, 6, 15, 21)) == (2, 10, "")


def test_a_duration_counts_hours_that_pass_and_not_what_the_clock_shows() -> None:
    short = schedule("0 1 * * *", hours=3, least=5)
    assert bounds_at([short], 1, 10, at(2026, 3, 29, 4, 59))[0] == 5, "the clock skipped one of its hours"
    assert bounds_at([short], 1, 10, at(2026, 3, 29, 5, 0))[0] == 1
    assert bounds_at([short], 1, 10, at(2026, 10, 25, 2, 59, fold=1))[0] == 5, "one of its hours came twice"
    assert bounds_at([short], 1, 10, at(2026, 10, 25, 3, 0))[0] == 1


def test_window_ends_once_when_its_end_occurs_twice() -> None:
    window = schedule("0 1 * * *", "30 2 * * *", least=5)
    assert bounds_at([window], 1, 10, at(2026, 10, 25, 2, 29))[0] == 5
    assert bounds_at([window], 1, 10, at(2026, 10, 25, 2, 30))[0] == 1
    assert bounds_at([window], 1, 10, at(2026, 10, 25, 2, 15, fold=1))[0] == 1


def test_window_that_the_clock_skips_is_omitted() -> None:
    window = schedule("15 2 * * *", "45 2 * * *", least=5)
    assert {bounds_at([window], 1, 10, at(2026, 3, 29, 0) + 60 * minute)[0] for minute in range(600)} == {1}


def test_highest_bounds_of_several_schedules_apply() -> None:
    sale = schedule("0 0 * * *", hours=24, name="sale", least=6, most=8)
    assert bounds_at([OFFICE, sale], 1, 10, at(2026, 6, 15, 12)) == (6, 20, "office, sale")


def test_a_minimum_above_every_maximum_raises_it() -> None:
    thrift = schedule("0 0 * * *", hours=24, name="thrift", most=3)
    sale = schedule("0 0 * * *", hours=24, name="sale", least=6)
    assert bounds_at([thrift, sale], 1, 10, at(2026, 6, 15, 12)) == (6, 6, "sale")


@given(
    zone=st.sampled_from(ZONES),
    hours=st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda pair: pair[0] != pair[1]),
    minutes=st.tuples(st.sampled_from(range(0, 60, 5)), st.sampled_from(range(0, 60, 5))),
    day=st.sampled_from(TURNED) | st.dates(dt.date(2026, 1, 2), dt.date(2027, 12, 30)),
)
def test_daily_window_begins_and_ends_once_a_day_across_clock_changes(
    zone: ZoneInfo, hours: tuple[int, int], minutes: tuple[int, int], day: dt.date
) -> None:
    window = schedule(f"{minutes[0]} {hours[0]} * * *", f"{minutes[1]} {hours[1]} * * *", zone=zone, least=5)
    start = dt.datetime.combine(day, dt.time(), zone).timestamp()
    end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), zone).timestamp()
    states = [window.is_active(start + 300 * step) for step in range(int(end - start) // 300 + 1)]
    turns = [after for before, after in pairwise(states) if before != after]
    assert turns.count(True) <= 1, "begins twice"
    assert turns.count(False) <= 1, "ends twice"


@given(
    drawn=st.lists(
        st.tuples(st.none() | st.integers(0, 20), st.none() | st.integers(1, 20), st.integers(0, 23)),
        max_size=5,
    ),
    minimum=st.integers(0, 10),
    more=st.integers(0, 10),
    hour=st.integers(0, 47),
)
def test_minimum_never_exceeds_maximum_and_defaults_are_the_spec_bounds(
    drawn: list[tuple[int | None, int | None, int]], minimum: int, more: int, hour: int
) -> None:
    maximum = max(minimum + more, 1)
    schedules = [
        schedule(f"0 {start} * * *", hours=5, name=f"s{number}", least=least, most=most)
        for number, (least, most, start) in enumerate(drawn)
        if (minimum if least is None else least) <= (maximum if most is None else most)  # as a spec must be
    ]
    least, most, names = bounds_at(schedules, minimum, maximum, at(2026, 6, 15) + 3600 * hour)
    assert 0 <= least <= most
    if not names:
        assert (least, most) == (minimum, maximum)
