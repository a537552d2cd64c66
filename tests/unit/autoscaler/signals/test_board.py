"""Load from the counts of gateways: summed, across restarts, without implausible ones."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.signals.board import Board, Reading, rejection
from autoscaler.signals.exposition import Counts, ScaleTargetName

T = ScaleTargetName("default", "d")
OTHER = ScaleTargetName("default", "other")
WANTED = frozenset({T})
LIVE = frozenset({"a", "b"})


def reading(gateway: str, at: float, total: float, *, started: float = 1.0, active: float = 0.0) -> Reading:
    return Reading(gateway, at, started, {T: Counts(total, total, 0, total / 10, total, active)})


def ticked(
    board: Board,
    now: float,
    *readings: Reading,
    live: frozenset[str] = frozenset(),
    unix_now: float | None = None,
) -> None:
    board.tick(readings, live, WANTED, {}, now, unix_now=100 + now if unix_now is None else unix_now)


def test_load_is_the_increase_between_two_readings() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    assert board.take(T) is None, "one reading says nothing of a rate"
    ticked(board, 5, reading("a", 105, 1050, active=3))
    load = board.take(T)
    assert load is not None
    assert (load.start, load.end, load.arrivals, load.finished) == (100, 105, 50, 50)
    assert (load.in_flight, load.latency) == (3, pytest.approx(0.1))
    assert board.take(T) is None, "the same is not given twice"
    assert board.is_whole


def test_the_time_before_the_first_request_is_idle_when_a_load_is_taken_after_several_readings() -> None:
    board = Board()
    for now, total in ((0, 1000), (5, 1000)):
        ticked(board, now, reading("a", 100 + now, total))
    assert board.take(T) is not None
    for now, total in ((10, 1000), (15, 1000), (20, 1050), (25, 1050)):
        ticked(board, now, reading("a", 100 + now, total))
    load = board.take(T)
    assert load is not None
    assert (load.seconds, load.idle, load.arrivals) == (20, 10, 50)
    ticked(board, 30, reading("a", 130, 1050, active=1))
    busy = board.take(T)
    assert busy is not None
    assert busy.idle == 0
    ticked(board, 35, reading("a", 135, 1051))
    ticked(board, 40, reading("a", 140, 1051))
    quiet = board.take(T)
    assert quiet is not None
    assert (quiet.seconds, quiet.idle) == (10, 0), "a request was in flight when it began"


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8))
def test_arrivals_are_the_sum_over_accepted_gateways(rises: list[tuple[int, int]]) -> None:
    board, totals, arrivals = Board(), [10.0, 20.0], 0.0
    for step, rise in enumerate([(0, 0), *rises]):
        totals = [total + more for total, more in zip(totals, rise, strict=True)]
        both = (reading("a", 100 + 5 * step, totals[0]), reading("b", 100 + 5 * step, totals[1]))
        ticked(board, 5 * step, *both, live=LIVE)
        load = board.take(T)
        arrivals += load.arrivals if load is not None else 0
    assert arrivals == pytest.approx(sum(a + b for a, b in rises))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(min_value=-1e12, max_value=1e12) | st.just(math.nan) | st.just(math.inf),
            st.integers(1, 3),
        ),
        max_size=20,
    )
)
def test_load_is_finite_and_not_negative_for_any_readings(
    totals: list[tuple[str, float, float, int]],
) -> None:
    board = Board()
    for step, (gateway, at, total, started) in enumerate(totals):
        counts = {T: Counts(total, total, 0, total, total, abs(total))}
        readings = [Reading(gateway, at, started, counts)]
        board.tick(readings, LIVE, WANTED, {T: 1.0}, 5.0 * step, unix_now=100 + 5.0 * step)
        load = board.take(T)
        if load is not None:
            figures = (load.arrivals, load.work, load.finished, load.in_flight, load.held, load.errors)
            assert all(0 <= figure < math.inf for figure in figures)
            assert load.latency is None or 0 <= load.latency < math.inf
            assert load.seconds > 0


def test_counts_begin_at_zero_after_a_restart_of_envoy() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    ticked(board, 5, reading("a", 105, 30, started=102))
    load = board.take(T)
    assert load is not None
    assert load.arrivals == 30
    assert board.is_whole


@pytest.mark.parametrize("step", [2.0, 3600.0, -3600.0])
def test_requests_count_once_when_the_clock_is_set_and_the_gateway_of_the_same_envoy_starts_again(
    step: float,
) -> None:
    """The gateway computes the start of its Envoy again, by the time of boot of today's clock."""
    board, started = Board(), 10_000.0
    ticked(board, 0, reading("a", 96_000, 8_640_000, started=started))
    ticked(board, 5, reading("a", 96_005 + step, 8_640_500, started=started))
    board.take(T)
    again = reading("a", 96_015 + step, 8_641_500, started=started + step)
    board.tick([replace(again, timed_targets=WANTED)], frozenset(), WANTED, {}, 15, unix_now=115)
    load = board.take(T)
    assert load is not None
    assert (load.arrivals, load.seconds) == (1000, 10)
    assert board.is_whole


def test_counts_begin_at_zero_when_envoy_restarts_after_the_clock_was_set_back() -> None:
    board = Board()
    ticked(board, 0, reading("a", 10_000, 1000, started=9_000))
    ticked(board, 5, reading("a", 6_405, 1050, started=9_000))
    board.take(T)
    ticked(board, 10, reading("a", 6_410, 30, started=6_406))
    load = board.take(T)
    assert load is not None
    assert load.arrivals == 30


def test_new_envoy_with_more_requests_than_one_can_have_had_is_excluded_and_reported() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    ticked(board, 5, reading("a", 105, 1050))
    board.take(T)
    ticked(board, 10, reading("a", 110, 1e9, started=107))
    assert board.take(T) is None
    assert "requests in 5 s" in board.health(10)[0].message
    ticked(board, 15, reading("a", 115, 1e9 + 70, started=107))
    load = board.take(T)
    assert load is not None
    assert load.arrivals == pytest.approx(70)


def test_gateway_that_repeats_its_counts_is_excluded_and_reported_when_it_lasts() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    ticked(board, 5, reading("a", 105, 1050))
    board.take(T)
    for now in (10, 15, 20, 25):
        ticked(board, now, reading("a", 105, 1050))
        assert board.take(T) is None
        assert not board.is_whole
    (health,) = board.health(25)
    assert (health.source, health.healthy, health.message) == ("gateway-a", False, "it repeats its counts")
    ticked(board, 30, reading("a", 130, 1300))
    load = board.take(T)
    assert load is not None
    assert (load.arrivals, load.seconds) == (250, 25)
    assert board.health(30)[0].healthy


@pytest.mark.parametrize(
    "lie",
    [
        reading("a", 110, 900),
        reading("a", 110, math.nan),
        reading("a", 110, -5),
        reading("a", 110, 1e9),
        reading("a", 110, 1100, active=1e9),
        reading("a", math.nan, 1100),
    ],
    ids=["fallen", "nan", "negative", "too-many", "in-flight", "no-time"],
)
def test_gateway_with_implausible_counts_is_excluded_and_reported_at_once(lie: Reading) -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    ticked(board, 5, reading("a", 105, 1050))
    board.take(T)
    ticked(board, 10, lie)
    assert board.take(T) is None
    assert not board.health(10)[0].healthy
    assert board.health(10)[0].message


def test_silent_gateway_keeps_its_rate_while_its_lease_is_valid() -> None:
    board = Board()
    for step in range(3):
        both = (reading("a", 100 + 5 * step, 50 * step), reading("b", 100 + 5 * step, 500 * step))
        ticked(board, 5 * step, *both, live=LIVE)
    board.take(T)
    ticked(board, 15, reading("a", 115, 150), live=LIVE)
    load = board.take(T)
    assert load is not None
    assert load.arrivals == pytest.approx(550)
    assert not board.is_whole
    ticked(board, 20, reading("a", 120, 200), live=frozenset({"a"}))
    load = board.take(T)
    assert load is not None
    assert load.arrivals == pytest.approx(50), "a gateway that is dead has no requests"
    assert board.is_whole


def test_returned_gateway_adds_at_most_its_share_of_the_time() -> None:
    board = Board()
    for now in range(0, 65, 5):
        readings = [reading("a", 100 + now, 10 * now)]
        if now in (0, 5, 60):
            readings.append(reading("b", 100 + now, 100 * now))
        ticked(board, now, *readings, live=LIVE)
        load = board.take(T)
        if now > 5:
            assert load is not None
            assert load.arrivals == pytest.approx(550, rel=0.01)


@pytest.mark.parametrize("late", [-0.1, 0.0, 0.02, 0.1])
@pytest.mark.parametrize("rates", [(0.0, 10.0), (10.0, 0.0), (5.0, 5.0)])
def test_rate_is_that_of_the_load_when_a_gateway_misses_one_tick(
    rates: tuple[float, float], late: float
) -> None:
    """Whether its reading spans more than twice that of the others depends on `late`."""
    board = Board()
    for now in (0.0, 5.0, 10.0, 15.0 + late, 20.0):
        a, b = (reading(name, 100 + now, rate * now) for name, rate in zip("ab", rates, strict=True))
        ticked(board, now, *([a] if now == 10 else [a, b]), live=LIVE)
        load = board.take(T)
        if now > 5:
            assert load is not None
            assert load.arrivals / load.seconds == pytest.approx(10, rel=0.02)
            assert load.seconds == pytest.approx(5 + (late if 10 < now < 20 else 0 if now < 20 else -late))


def test_rate_is_that_of_the_load_when_gateways_are_silent_by_turns() -> None:
    board = Board()
    for now in range(0, 65, 5):
        a, b = reading("a", 100 + now, 2 * now), reading("b", 100 + now, 8 * now)
        ticked(board, now, *([a, b] if now <= 5 else [a] if now % 10 else [b]), live=LIVE)
        load = board.take(T)
        if now > 5:
            assert load is not None
            assert load.arrivals / load.seconds == pytest.approx(10)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_load_continues_when_the_clock_is_set(jump: float) -> None:
    board = Board()
    ticked(board, 0, reading("a", 10_000, 1000))
    ticked(board, 5, reading("a", 10_005, 1050))
    board.take(T)
    ticked(board, 10, reading("a", 10_010 + jump, 1100), unix_now=10_010 + jump)
    load = board.take(T)
    assert load is not None
    assert (load.arrivals, load.seconds) == (50, pytest.approx(5))
    assert load.end == 10_010 + jump


@pytest.mark.parametrize("lag", [-90.0, 90.0])
def test_load_ends_at_the_tick_when_the_clock_of_its_gateway_differs(lag: float) -> None:
    board = Board()
    ticked(board, 0, reading("a", 10_000 - lag, 1000), unix_now=10_000)
    ticked(board, 5, reading("a", 10_005 - lag, 1050), unix_now=10_005)
    load = board.take(T)
    assert load is not None
    assert (load.start, load.end, load.arrivals) == (10_000, 10_005, 50)


def test_held_requests_are_not_in_flight_at_replicas() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 1000))
    board.tick([reading("a", 105, 1010, active=10)], frozenset(), WANTED, {T: 7.0}, 5, unix_now=105)
    load = board.take(T)
    assert load is not None
    assert (load.in_flight, load.held) == (3, 7)


def test_all_requests_of_a_new_revision_are_new() -> None:
    before = Reading("a", 100, 1, {OTHER: Counts(5, 5)})
    after = Reading("a", 105, 1, {OTHER: Counts(5, 5), T: Counts(40, 40)})
    board = Board()
    ticked(board, 0, before)
    ticked(board, 5, after)
    load = board.take(T)
    assert load is not None
    assert load.arrivals == 40
    assert rejection(before, after, 5) is None
