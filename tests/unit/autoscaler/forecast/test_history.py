import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.forecast.history import DAY_BINS, MOST_BINS, History


def history_of(levels: list[float], start: int = 1000) -> History:
    history = History()
    for i, level in enumerate(levels):
        history.add(start + i, level)
    return history


def test_gap_is_filled_from_a_day_before_when_it_is_known() -> None:
    history = history_of([float(i) for i in range(DAY_BINS + 10)])
    history.add(1000 + DAY_BINS + 13, -5.0)
    assert list(history.levels[-5:]) == [DAY_BINS + 9, 10.0, 11.0, 12.0, -5.0]


def test_gap_is_filled_from_the_previous_bin_without_a_day_before() -> None:
    history = history_of([1.0, 2.0])
    history.add(1005, 7.0)
    assert list(history.levels) == [1.0, 2.0, 2.0, 2.0, 2.0, 7.0]


def test_bins_are_skipped_when_the_clock_is_set_back_an_hour() -> None:
    history = history_of([1.0] * 30)
    for index in range(1018, 1030):
        history.add(index, 9.0)
    assert list(history.levels) == [1.0] * 30
    history.add(1030, 3.0)
    assert list(history.levels) == [*[1.0] * 30, 3.0]


def test_history_restarts_when_the_clock_jumps_further_than_its_length() -> None:
    for index in (1029 - DAY_BINS, 1030 + MOST_BINS):
        history = history_of([1.0] * 30)
        history.add(index, 4.0)
        assert (list(history.levels), history.end) == ([4.0], index + 1)


def test_history_keeps_two_weeks_of_a_longer_load() -> None:
    history = history_of([float(i) for i in range(MOST_BINS + 500)])
    assert (len(history), history.levels[0], history.end) == (MOST_BINS, 500.0, 1000 + MOST_BINS + 500)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-400, 5000), st.floats(-50, 50)), max_size=30))
def test_a_history_is_bounded_and_the_same_when_restored_from_json(steps: list[tuple[int, float]]) -> None:
    history, index = History(), 10_000
    for step, level in steps:
        index += step
        history.add(index, level)
        assert len(history) <= MOST_BINS
    restored = History()
    restored.restore(**json.loads(json.dumps(history.state())))
    assert (restored.levels, restored.end) == (history.levels, history.end)
    for each in (history, restored):
        each.add(index + 3, 1.0)
    assert restored.levels == history.levels


def test_invalid_state_of_a_history_is_ignored() -> None:
    state = history_of([math.nan, 1.0]).state()
    for levels in ("%", "é", "AAA=", state["levels"]):
        history = history_of([2.0])
        history.restore(5, levels)
        assert (list(history.levels), history.end) == ([2.0], 1001)
