"""Percentiles of the last minute, summed over gateways."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.observation import Percentile
from autoscaler.signals import durations
from autoscaler.signals.board import Board, Reading
from autoscaler.signals.durations import WINDOW_SECONDS, DurationWindow
from autoscaler.signals.exposition import Counts, ScaleTargetName

T = ScaleTargetName("default", "d")
WANTED = frozenset({T})
BUCKETS = {0.1: 50.0, 0.5: 90.0, 1.0: 100.0, math.inf: 100.0}


@pytest.mark.parametrize(("percent", "seconds"), [(25, 0.05), (50, 0.1), (70, 0.3), (95, 0.75), (100, 1.0)])
def test_a_percentile_is_interpolated_within_its_bucket(percent: float, seconds: float) -> None:
    assert durations.percentile(BUCKETS, percent) == pytest.approx(seconds)


def test_percentile_beyond_the_last_bound_is_that_bound() -> None:
    assert durations.percentile({1.0: 1.0, math.inf: 100.0}, 95) == 1.0
    assert durations.percentile({1.0: 0.0, math.inf: 0.0}, 95) is None


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=8), st.floats(1, 99), st.floats(1, 99))
def test_percentiles_do_not_fall_with_their_percent(counts: list[int], first: float, second: float) -> None:
    total, buckets = 0.0, {}
    for place, count in enumerate(counts):
        total += count
        buckets[math.inf if place == len(counts) - 1 else 2.0**place] = total
    low, high = (durations.percentile(buckets, percent) for percent in sorted((first, second)))
    assert (low is None) == (total == 0)
    assert low is None or high is None or 0 <= low <= high <= 2.0 ** (len(counts) - 2)


def test_answers_leave_the_window_after_a_minute_and_silence_is_not_known() -> None:
    window = DurationWindow()
    assert window.percentile(T, 95, 0.0) is None
    window.mark_read([T], 0.0)
    window.add(T, BUCKETS, 0.0)
    assert window.percentile(T, 50, WINDOW_SECONDS) == Percentile(0.1, 100.0)
    window.mark_read([T], WINDOW_SECONDS + 1)
    assert window.percentile(T, 50, WINDOW_SECONDS + 1) == Percentile(None, 0.0), "read, and too few to tell"
    assert window.percentile(T, 50, 2 * WINDOW_SECONDS + 2) is None


def reading(gateway: str, at: float, factor: float, *, started: float = 1.0, timed: bool = True) -> Reading:
    buckets = {T: {bound: factor * count for bound, count in BUCKETS.items()}}
    counts = {T: Counts(100 * factor, 100 * factor, 0, factor, 100 * factor, 0)}
    return Reading(gateway, at, started, counts, buckets if timed else {}, WANTED if timed else frozenset())


def ticked(board: Board, now: float, *readings: Reading) -> Percentile | None:
    board.tick(readings, frozenset({"a", "b"}), WANTED, {}, now, unix_now=now)
    return board.percentile(T, 50, now)


def test_answers_of_all_gateways_add_up_and_those_before_the_first_reading_do_not_count() -> None:
    board = Board()
    assert ticked(board, 0, reading("a", 100, 50), reading("b", 100, 70)) is None
    both = ticked(board, 5, reading("a", 105, 51), reading("b", 105, 72))
    assert both == Percentile(pytest.approx(0.1), pytest.approx(300))


def test_answers_before_the_first_request_for_them_do_not_count() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 50, timed=False))
    assert ticked(board, 5, reading("a", 105, 60)) is None
    assert ticked(board, 10, reading("a", 110, 61)) == Percentile(pytest.approx(0.1), pytest.approx(100))


def test_answers_count_from_zero_after_a_restart_of_envoy() -> None:
    board = Board()
    ticked(board, 0, reading("a", 100, 50))
    percentile = ticked(board, 5, reading("a", 105, 2, started=103.0))
    assert percentile == Percentile(pytest.approx(0.1), pytest.approx(200))


@given(
    st.dictionaries(st.floats(), st.floats(), max_size=5),
    st.dictionaries(st.floats(), st.floats(), max_size=5),
)
def test_increase_is_finite_and_not_negative_for_any_histogram(
    before: dict[float, float], after: dict[float, float]
) -> None:
    increase = durations.increase(before, after)
    assert increase is None or all(bound > 0 and 0 <= value < math.inf for bound, value in increase.items())


def test_answers_of_a_target_that_is_never_sized_are_removed_after_a_minute() -> None:
    window = DurationWindow()
    for now in range(0, 3600, 5):
        window.add(T, BUCKETS, now)
    assert len(window._increases[T]) == WINDOW_SECONDS / 5 + 1
