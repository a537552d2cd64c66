"""What all windows of a trial together say of a load; the windows here lie on a law, so that what is true is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Estimate, LatencyAt, Window
from tuner import intervals
from tuner.constraints import measured_value
from tuner.load.level_search import latency_curve, load_model
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.state import State
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
USERS = (1, 4, 16, 64, 128)
ALONE, EACH = 0.010, 0.0005
"""Seconds of an answer without load, and what each user adds."""


def exact(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


def window(level: float, seconds: float = 2.0, *, stall: float = 1.0, errors: int = 0) -> Window:
    takes = ALONE + EACH * level
    done = level / takes
    latencies = [
        LatencyAt(metric="latency", percentile=percent, **exact(factor * takes * stall).model_dump())
        for percent, factor in ((50, 1.0), (99, 1.5))
    ]
    return Window(
        level=level, seconds=seconds, requests=round(done * seconds), errors=errors, throughput=exact(done),
        latencies=latencies, error_rate=exact(errors / (done * seconds)), tokens_per_second=3 * done,
    )  # fmt: skip


def p99(at_most: str) -> Constraint:
    return Constraint(metric="latency", percentile=99, at_most=at_most)


def read(
    *constraints: Constraint, windows: tuple[Window, ...] | None = None, load: Load | None = None
) -> LoadModel:
    state = State(load or Load(window_seconds=2), SETTINGS, constraints, 0.0)
    found = load_model.fit(state, windows or tuple(window(level) for level in USERS), ())
    assert found is not None
    return found


def test_the_highest_load_is_where_the_limit_is_met_on_average_without_a_margin() -> None:
    """1.5 (10 + 0.5 N) ms are 60 ms with 60 users."""
    assert read(p99("60ms")).highest(128, 0.0) == pytest.approx(60, rel=0.05)


def test_the_margin_is_that_of_another_window() -> None:
    found = read(p99("60ms"))
    level = found.highest(128, 2.5)
    curves = found.curves(level)
    at = np.array([level])
    mean, deviation = (float(each[0]) for each in curves.latencies["latency", 99].at(at))
    unsure = math.hypot(deviation, float(curves.repeat_deviation(("latency", 99), at)[0]))
    assert math.log(0.06) - mean == pytest.approx(2.5 * unsure, abs=0.05)
    assert level < found.highest(128, 0.0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(limit=st.floats(1, 200), more=st.floats(1, 3), deviations=st.sampled_from([0.0, 2.5]))
def test_more_is_met_where_more_is_allowed(limit: float, more: float, deviations: float) -> None:
    low, high = (read(p99(f"{each:.3f}ms")).highest(128, deviations) for each in (limit, limit * more))
    assert 1 <= low <= high <= 128
    assert low == int(low)


def test_no_throughput_is_given_up_for_a_margin_that_no_load_has() -> None:
    """A p99 of 15 ms alone is near a limit of 17 ms with one user too: where few users give little more latency, none are sent away."""
    found = read(p99("17ms"), windows=tuple(window(level) for level in (1, 2, 3)))
    assert found.highest(3, 2.5) == found.highest(3, 0.0) == 2


def test_the_least_load_is_returned_where_none_meets() -> None:
    assert read(p99("1ms")).highest(128, 2.5) == 1


def test_a_latency_that_was_never_seen_is_met_by_no_load() -> None:
    unseen = Constraint(metric="ttft", percentile=99, at_most="10s")
    found = read(p99("60ms"), unseen)
    assert found.highest(128, 0.0) == 1
    assert found.at(1).meets == "Unsure"


def test_given_levels_are_the_only_ones() -> None:
    load = Load(window_seconds=2, levels=["1", "4", "16", "64", "128"])
    assert read(p99("60ms"), load=load).highest(128, 0.0) == 16


def test_one_stall_costs_little_load() -> None:
    calm = read(p99("60ms"))
    stalled = read(
        p99("60ms"), windows=tuple(window(level, stall=2.5 if level == 64 else 1) for level in USERS)
    )
    assert stalled.highest(128, 2.5) > 0.55 * calm.highest(128, 2.5)


@pytest.mark.parametrize("level", [20, 40, 100])
def test_what_a_load_needs_is_the_least_limit_with_which_it_is_found(level: int) -> None:
    (need,) = read(p99("60ms")).needs(level)
    found = [read(p99(f"{1000 * need * share:.3f}ms")).highest(128, SETTINGS.safety) for share in (0.9, 1.1)]
    assert found[0] < level < found[1]


def test_what_a_load_needs_of_an_error_rate_is_the_share_that_failed() -> None:
    windows = (window(1), window(4, errors=4))
    (need,) = read(Constraint(metric="errorRate", at_most="5%"), windows=windows).needs(4)
    assert need == pytest.approx(4 / sum(one.requests for one in windows))


def test_a_load_between_windows_is_read_from_the_curves() -> None:
    found = read(p99("60ms")).at(32)
    assert found.level == 32
    assert found.throughput.value == pytest.approx(32 / 0.026, rel=0.05)
    assert found.throughput.low < 32 / 0.026 < found.throughput.high
    assert [one.percentile for one in found.latencies] == [50, 99]
    assert found.latencies[1].value == pytest.approx(1.5 * 0.026, rel=0.1)
    assert found.latencies[1].low < 1.5 * 0.026 < found.latencies[1].high
    assert found.tokens_per_second == pytest.approx(3 * found.throughput.value)
    assert found.requests == sum(window(level).requests for level in USERS)
    assert found.seconds == 10
    assert found.meets == "Yes"


def test_what_is_met_on_average_and_not_for_sure_is_said() -> None:
    assert [read(p99(limit)).at(64).meets for limit in ("200ms", "64ms", "20ms")] == ["Yes", "Unsure", "No"]


def test_the_next_window_s_scatter_stands_in_the_result_of_what_has_a_limit() -> None:
    limited, free = read(p99("60ms")).at(32), read().at(32)
    few = float(latency_curve.sampling(np.array([2 * limited.throughput.value]), 99)[0])
    assert few < limited.scatter < math.hypot(few, SETTINGS.scatter)
    assert free.scatter is None


def test_the_throughput_is_less_sure_where_an_unsure_limit_holds_the_load() -> None:
    free, held = read().at(30), read(p99("40ms")).at(30)
    assert intervals.half_width(held.throughput) > intervals.half_width(free.throughput)


def test_a_higher_percentile_is_never_below_a_lower_one() -> None:
    odd = [one.model_copy(update={"latencies": [one.latencies[1].model_copy(update={"percentile": 50}), one.latencies[0].model_copy(update={"percentile": 99})]}) for one in map(window, USERS)]  # fmt: skip
    low, high = read(windows=tuple(odd)).at(16).latencies
    assert (low.percentile, high.percentile) == (50, 99)
    assert low.value <= high.value


def test_failures_are_counted_over_all_windows_of_no_more_load() -> None:
    windows = (window(1), window(4, errors=4), window(64, errors=50))
    found = read(windows=windows).at(4)
    assert found.error_rate.value == pytest.approx(4 / (windows[0].requests + windows[1].requests))


def test_where_nothing_was_answered_there_is_nothing_to_read() -> None:
    silent = window(1).model_copy(update={"throughput": exact(0.0), "latencies": []})
    assert load_model.fit(State(Load(), SETTINGS, (), 0.0), [silent], ()) is None


def test_the_fewest_users_give_the_share_that_is_asked() -> None:
    found = read()
    level = found.fewest(128, 0.9)
    give = [window(each).throughput.value for each in (level, 128)]
    assert give[0] == pytest.approx(0.9 * give[1], rel=0.05)


def test_a_queue_that_grew_beyond_its_window_lowers_the_rate_of_an_open_loop() -> None:
    load, limit = Load(mode="open", window_seconds=4), p99("60ms")
    state = State(load, SETTINGS, (limit,), 0.0)
    flat = [window(1).model_copy(update={"level": level, "throughput": exact(level), "requests": 4 * round(level)}) for level in (100.0, 300.0, 600.0)]  # fmt: skip
    broken = flat[-1].model_copy(update={"level": 700.0, "latencies": [LatencyAt(metric="latency", percentile=99, **exact(0.5).model_dump())]})  # fmt: skip
    free, ended = (load_model.fit(state, flat, beyond) for beyond in ((), (broken,)))
    assert free is not None
    assert ended is not None
    assert (
        measured_value(ended.at(600), "latency", 99).value > measured_value(free.at(600), "latency", 99).value
    )  # type: ignore[union-attr]
