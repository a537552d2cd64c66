"""The load model of windows that lie on a known curve."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Estimate, LatencyAt, Window
from tuner import intervals
from tuner.constraints import measured_value
from tuner.load.level_search import latency_curve, load_model
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.state import State
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
USERS = (1, 4, 16, 64, 128)
ALONE, EACH = 0.010, 0.0005
"""Latency in seconds without load, and the increase by each user."""


def exact(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


def window(level: float, seconds: float = 2.0, *, stall: float = 1.0, errors: int = 0) -> Window:
    latency = ALONE + EACH * level
    rate = level / latency
    latencies = [
        LatencyAt(metric="latency", percentile=percent, **exact(factor * latency * stall).model_dump())
        for percent, factor in ((50, 1.0), (99, 1.5))
    ]
    return Window(
        level=level,
        seconds=seconds,
        requests=round(rate * seconds),
        errors=errors,
        throughput=exact(rate),
        latencies=latencies,
        error_rate=exact(errors / (rate * seconds)),
        tokens_per_second=3 * rate,
    )


def p99(at_most: str) -> Constraint:
    return Constraint(metric="latency", percentile=99, at_most=at_most)


def model_of(
    *constraints: Constraint, windows: tuple[Window, ...] | None = None, load: ExperimentLoad | None = None
) -> LoadModel:
    state = State(load or ExperimentLoad(window_seconds=2), SETTINGS, constraints, 0.0)
    model = load_model.fit(state, windows or tuple(window(level) for level in USERS), ())
    assert model is not None
    return model


def test_highest_load_meets_the_limit_on_average_without_an_allowance() -> None:
    """1.5 (10 + 0.5 N) ms are 60 ms with 60 users."""
    assert model_of(p99("60ms")).highest(128, 0.0) == pytest.approx(60, rel=0.05)


def test_allowance_is_that_of_another_window() -> None:
    model = model_of(p99("60ms"))
    level = model.highest(128, 2.5)
    curves = model.curves(level)
    at = np.array([level])
    mean, deviation = (float(each[0]) for each in curves.latencies["latency", 99].at(at))
    unsure = math.hypot(deviation, float(curves.repeat_deviation(("latency", 99), at)[0]))
    assert math.log(0.06) - mean == pytest.approx(2.5 * unsure, abs=0.05)
    assert level < model.highest(128, 0.0)


@settings(max_examples=30)
@given(limit=st.floats(1, 200), more=st.floats(1, 3), deviations=st.sampled_from([0.0, 2.5]))
def test_highest_load_grows_with_the_limit(limit: float, more: float, deviations: float) -> None:
    low, high = (model_of(p99(f"{each:.3f}ms")).highest(128, deviations) for each in (limit, limit * more))
    assert 1 <= low <= high <= 128
    assert low == int(low)


def test_allowance_lowers_no_load_below_the_knee() -> None:
    """The p99 of one user, 15 ms, is near the limit of 17 ms; fewer users give little less latency."""
    model = model_of(p99("17ms"), windows=tuple(window(level) for level in (1, 2, 3)))
    assert model.highest(3, 2.5) == model.highest(3, 0.0) == 2


def test_highest_load_is_the_least_when_none_meets_the_limit() -> None:
    assert model_of(p99("1ms")).highest(128, 2.5) == 1


def test_no_load_meets_a_limit_of_an_unmeasured_latency() -> None:
    unseen = Constraint(metric="ttft", percentile=99, at_most="10s")
    model = model_of(p99("60ms"), unseen)
    assert model.highest(128, 0.0) == 1
    assert model.at(1).meets == "Unsure"


def test_given_levels_are_the_only_candidates() -> None:
    load = ExperimentLoad(window_seconds=2, levels=["1", "4", "16", "64", "128"])
    assert model_of(p99("60ms"), load=load).highest(128, 0.0) == 16


def test_one_stall_lowers_the_highest_load_little() -> None:
    calm = model_of(p99("60ms"))
    stalled = model_of(
        p99("60ms"), windows=tuple(window(level, stall=2.5 if level == 64 else 1) for level in USERS)
    )
    assert stalled.highest(128, 2.5) > 0.55 * calm.highest(128, 2.5)


@pytest.mark.parametrize("level", [20, 40, 100])
def test_needed_bound_is_the_least_limit_that_gives_the_load(level: int) -> None:
    (need,) = model_of(p99("60ms")).needs(level)
    levels = [
        model_of(p99(f"{1000 * need * share:.3f}ms")).highest(128, load_model.SAFETY) for share in (0.9, 1.1)
    ]
    assert levels[0] < level < levels[1]


def test_needed_error_rate_is_the_share_of_failed_requests() -> None:
    windows = (window(1), window(4, errors=4))
    (need,) = model_of(Constraint(metric="errorRate", at_most="5%"), windows=windows).needs(4)
    assert need == pytest.approx(4 / sum(each.requests for each in windows))


def test_values_between_windows_are_read_from_the_curves() -> None:
    expected = model_of(p99("60ms")).at(32)
    assert expected.level == 32
    assert expected.throughput.value == pytest.approx(32 / 0.026, rel=0.05)
    assert expected.throughput.low < 32 / 0.026 < expected.throughput.high
    assert [latency.percentile for latency in expected.latencies] == [50, 99]
    assert expected.latencies[1].value == pytest.approx(1.5 * 0.026, rel=0.1)
    assert expected.latencies[1].low < 1.5 * 0.026 < expected.latencies[1].high
    assert expected.tokens_per_second == pytest.approx(3 * expected.throughput.value)
    assert expected.requests == sum(window(level).requests for level in USERS)
    assert expected.seconds == 10
    assert expected.meets == "Yes"


def test_limit_near_the_expected_latency_is_unsure() -> None:
    assert [model_of(p99(limit)).at(64).meets for limit in ("200ms", "64ms", "20ms")] == [
        "Yes",
        "Unsure",
        "No",
    ]


def test_result_has_the_scatter_of_windows_only_with_a_limit() -> None:
    limited, free = model_of(p99("60ms")).at(32), model_of().at(32)
    few = float(latency_curve.sampling_deviation(np.array([2 * limited.throughput.value]), 99)[0])
    assert few < limited.scatter < math.hypot(few, load_model.PRIOR.scatter)
    assert free.scatter is None


def test_throughput_is_less_sure_when_an_unsure_limit_determines_the_load() -> None:
    free, held = model_of().at(30), model_of(p99("40ms")).at(30)
    assert intervals.half_width(held.throughput) > intervals.half_width(free.throughput)


def test_percentiles_are_monotonic() -> None:
    def swapped(level: float) -> Window:
        p50, p99 = window(level).latencies
        latencies = [p99.model_copy(update={"percentile": 50}), p50.model_copy(update={"percentile": 99})]
        return window(level).model_copy(update={"latencies": latencies})

    low, high = model_of(windows=tuple(map(swapped, USERS))).at(16).latencies
    assert (low.percentile, high.percentile) == (50, 99)
    assert low.value <= high.value


def test_error_rate_counts_windows_of_the_load_and_lower_ones() -> None:
    windows = (window(1), window(4, errors=4), window(64, errors=50))
    expected = model_of(windows=windows).at(4)
    assert expected.error_rate.value == pytest.approx(4 / (windows[0].requests + windows[1].requests))


def test_model_is_none_without_answers() -> None:
    silent = window(1).model_copy(update={"throughput": exact(0.0), "latencies": []})
    assert load_model.fit(State(ExperimentLoad(), SETTINGS, (), 0.0), [silent], ()) is None


def test_fewest_users_give_the_share_of_the_throughput() -> None:
    model = model_of()
    level = model.fewest(128, 0.9)
    fewest, most = (window(users).throughput.value for users in (level, 128))
    assert fewest == pytest.approx(0.9 * most, rel=0.05)


def test_growing_queue_raises_the_latency_of_an_open_loop() -> None:
    load, limit = ExperimentLoad(mode="open", window_seconds=4), p99("60ms")
    state = State(load, SETTINGS, (limit,), 0.0)
    flat = [
        window(1).model_copy(
            update={"level": level, "throughput": exact(level), "requests": 4 * round(level)}
        )
        for level in (100.0, 300.0, 600.0)
    ]
    slow = LatencyAt(metric="latency", percentile=99, **exact(0.5).model_dump())
    broken = flat[-1].model_copy(update={"level": 700.0, "latencies": [slow]})
    free, ended = (load_model.fit(state, flat, beyond) for beyond in ((), (broken,)))
    assert free is not None
    assert ended is not None
    with_queue, without = (measured_value(model.at(600), "latency", 99) for model in (ended, free))
    assert with_queue is not None
    assert without is not None
    assert with_queue.value > without.value


def test_tokens_per_answer_are_the_mean_of_all_windows() -> None:
    few, many = window(16), window(64)
    longer = few.model_copy(update={"tokens_per_second": 9 * few.throughput.value})
    result = model_of(windows=(longer, many)).at(16)
    answers = few.throughput.value, many.throughput.value
    mean = (9 * answers[0] + 3 * answers[1]) / sum(answers)
    assert result.tokens_per_second == pytest.approx(mean * result.throughput.value)


def test_prompt_tokens_per_answer_are_the_mean_of_all_windows() -> None:
    few, many = (
        window(users).model_copy(update={"prompt_tokens_per_second": tokens * window(users).throughput.value})
        for users, tokens in ((16, 50), (64, 20))
    )
    result = model_of(windows=(few, many)).at(16)
    answers = few.throughput.value, many.throughput.value
    mean = (50 * answers[0] + 20 * answers[1]) / sum(answers)
    assert result.prompt_tokens_per_second == pytest.approx(mean * result.throughput.value)


def test_prompt_tokens_are_unknown_when_a_window_has_none() -> None:
    known = window(16).model_copy(update={"prompt_tokens_per_second": 500.0})
    assert model_of(windows=(known, window(64))).at(16).prompt_tokens_per_second == 0
    silent = window(1).model_copy(update={"throughput": exact(0.0), "latencies": []})
    assert model_of(windows=(silent, known)).at(16).prompt_tokens_per_second > 0, "no answer, no count"
