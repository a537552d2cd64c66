"""Times that repeat, against a clock that is looked at every minute."""

import datetime as dt
import re
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoscaler.policy.limits.cron import Cron

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
"""Its daylight saving is half an hour."""
CHANGES = (
    (BERLIN, dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)),
    (BERLIN, dt.datetime(2026, 10, 25, 1, tzinfo=dt.UTC)),
    (NEW_YORK, dt.datetime(2026, 3, 8, 7, tzinfo=dt.UTC)),
    (NEW_YORK, dt.datetime(2026, 11, 1, 6, tzinfo=dt.UTC)),
    (LORD_HOWE, dt.datetime(2026, 4, 4, 15, tzinfo=dt.UTC)),
    (LORD_HOWE, dt.datetime(2026, 10, 3, 15, 30, tzinfo=dt.UTC)),
    (BERLIN, dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
)
"""Around them the clock is turned; not at the last one."""
AROUND = dt.timedelta(hours=40)


@cache
def clock(zone: ZoneInfo, middle: dt.datetime) -> tuple[tuple[float, dt.datetime], ...]:
    """Every minute around a moment, with its local time."""
    start = int((middle - AROUND).timestamp())
    moments = range(start, start + int(2 * AROUND.total_seconds()), 60)
    return tuple((float(moment), dt.datetime.fromtimestamp(moment, zone)) for moment in moments)


def comes(cron: Cron, wall: dt.datetime) -> bool:
    days = (wall.day in cron.days, wall.isoweekday() % 7 in cron.weekdays)
    return (
        wall.hour * 60 + wall.minute in cron.minutes
        and wall.month in cron.months
        and (any(days) if cron.either_day else all(days))
    )


def expected(cron: Cron, zone: ZoneInfo, middle: dt.datetime) -> list[float]:
    """Moments around `middle` at which the expression matches the local time, minute by minute."""
    times = []
    before: dt.datetime | None = None
    for moment, shown in clock(zone, middle):
        wall = shown.replace(tzinfo=None, fold=0)
        skipped = []
        if before is not None and wall - before > dt.timedelta(minutes=1):
            minutes = int((wall - before).total_seconds()) // 60
            skipped = [before + dt.timedelta(minutes=number) for number in range(1, minutes)]
        here = comes(cron, wall) and (cron.every_hour or not shown.fold)
        if here or (not cron.every_hour and any(comes(cron, minute) for minute in skipped)):
            times.append(moment)
        before = wall
    return times


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    several = st.lists(number, min_size=1, max_size=3).map(lambda values: ",".join(map(str, values)))
    between = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.one_of(st.just("*"), several, between, st.integers(1, most).map(lambda step: f"*/{step}"))


crons = st.builds(
    lambda *parts: " ".join(parts),
    fields(0, 59),
    st.one_of(fields(0, 23), fields(1, 3)),
    st.just("*") | fields(1, 28),
    st.just("*"),
    st.just("*") | fields(0, 6),
)


@given(text=crons, change=st.sampled_from(CHANGES), minutes=st.integers(0, 79 * 60))
@example(text="30 2 * * *", change=CHANGES[0], minutes=40 * 60)
@example(text="30 2 * * *", change=CHANGES[1], minutes=41 * 60)
@example(text="*/20 * * * *", change=CHANGES[1], minutes=40 * 60 + 50)
@example(text="*/20 * * * *", change=CHANGES[5], minutes=40 * 60 + 5)
@example(text="15 2 * * *", change=CHANGES[5], minutes=40 * 60)
def test_latest_time_is_the_latest_matching_time_of_the_clock(
    text: str, change: tuple[ZoneInfo, dt.datetime], minutes: int
) -> None:
    zone, middle = change
    cron = Cron.parse(text)
    now = (middle - AROUND).timestamp() + 60 * minutes + 1
    came = [moment for moment in expected(cron, zone, middle) if moment <= now]
    latest = cron.latest(zone, now)
    if came:
        assert latest == came[-1]
    else:
        # A time before the first look; the first minute may or may not be one after a skip.
        assert latest is None or latest <= (middle - AROUND).timestamp()


@given(
    text=crons, change=st.sampled_from(CHANGES), seconds=st.lists(st.integers(-144_000, 144_000), min_size=2)
)
def test_latest_time_never_decreases(
    text: str, change: tuple[ZoneInfo, dt.datetime], seconds: list[int]
) -> None:
    zone, middle = change
    cron = Cron.parse(text)
    latest = [cron.latest(zone, middle.timestamp() + moment) or 0.0 for moment in sorted(seconds)]
    assert latest == sorted(latest)


def local(zone: ZoneInfo, *parts: int) -> float:
    return dt.datetime(*parts, tzinfo=zone).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "now", "latest"),
    [
        ("0 8 * * mon-fri", (2026, 6, 14, 12, 0), (2026, 6, 12, 8, 0)),
        ("0 8 * * 1-5", (2026, 6, 15, 7, 59), (2026, 6, 12, 8, 0)),
        ("0 8 * * 7", (2026, 6, 15, 7, 59), (2026, 6, 14, 8, 0)),
        ("0 0 1 jan *", (2026, 6, 15, 0, 0), (2026, 1, 1, 0, 0)),
        ("0 0 29 2 *", (2026, 6, 15, 0, 0), (2024, 2, 29, 0, 0)),
        ("5/20 9 * * *", (2026, 6, 15, 12, 0), (2026, 6, 15, 9, 45)),
        ("0 12 13 * fri", (2026, 6, 16, 0, 0), (2026, 6, 13, 12, 0)),
        ("0 12 13 * fri", (2026, 6, 13, 0, 0), (2026, 6, 12, 12, 0)),
    ],
)
def test_expression_matches_as_in_cron(text: str, now: tuple[int, ...], latest: tuple[int, ...]) -> None:
    assert Cron.parse(text).latest(BERLIN, local(BERLIN, *now)) == local(BERLIN, *latest)


def test_day_that_occurs_every_eight_years_is_found() -> None:
    before_the_next = dt.datetime(2104, 2, 28, tzinfo=dt.UTC).timestamp()
    latest = Cron.parse("0 0 29 2 *").latest(ZoneInfo("UTC"), before_the_next)
    assert latest == dt.datetime(2096, 2, 29, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 8 * *", "has 4 fields and not 5"),
        ("60 8 * * *", "'60' is no minute from 0 to 59"),
        ("0 24 * * *", "'24' is no hour from 0 to 23"),
        ("0 8 0 * *", "'0' is no day of month from 1 to 31"),
        ("0 8 * 13 *", "'13' is no month from 1 to 12"),
        ("0 8 * * 8", "'8' is no day of week from 0 to 7"),
        ("0 8 * * funday", "'funday' is no day of week"),
        ("0 18-8 * * *", "'18-8' is no range of hours"),
        ("0 */0 * * *", "the step in '*/0' must be at least 1"),
        ("0 8 L * *", "'l' is no day of month"),
        ("0 8,,9 * * *", "'' is no hour"),
        ("0 8 30 2 *", "no such day of such a month ever comes"),
    ],
)
def test_invalid_expression_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Cron.parse(text)


def test_midnight_counts_after_the_clock_returns_to_the_day_before() -> None:
    zone = ZoneInfo("America/St_Johns")  # until 2011 it was turned at one minute past midnight
    midnight = dt.datetime(2010, 11, 7, tzinfo=zone)
    again = dt.datetime(2010, 11, 6, 23, 30, tzinfo=zone, fold=1)
    assert midnight.timestamp() < again.timestamp()
    assert Cron.parse("0 0 * * *").latest(zone, again.timestamp()) == midnight.timestamp()
