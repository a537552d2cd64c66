"""From samples to a Window: what is counted, what meets a constraint, and how sure that is."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources.experiment import Constraint
from tests.reference.queueing import Target, exponential, steady_service
from tuner.constraints import bound_of
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()


def samples(latency: list[float] | np.ndarray, *, seconds: float = 10.0, **changed: object) -> Samples:
    """Answers that came evenly over a window."""
    values = np.asarray(latency, dtype=np.float64)
    done = (np.arange(len(values)) + 0.5) * seconds / max(1, len(values))
    found = Samples(
        mode="closed", level=1, seconds=seconds, intended=done - values, latency=values,
        ok=np.ones(len(values), dtype=bool), tokens=np.zeros(len(values), dtype=np.int64),
        ttft=np.full(len(values), -1.0), itl=np.empty(0), itl_done=np.empty(0), unfinished=np.empty(0), longest=30.0,
    )  # fmt: skip
    return dataclasses.replace(found, **changed)


def latency(at_most: str, percentile: int = 99) -> Constraint:
    return Constraint(metric="latency", percentile=percentile, at_most=at_most)


def test_throughput_counts_answers_and_not_failures() -> None:
    ok = np.arange(2000) % 4 != 0
    window = window_summary.summary(samples(np.full(2000, 0.01), ok=ok), (), SETTINGS)
    assert window.throughput.value == pytest.approx(150)
    assert (window.requests, window.errors) == (2000, 500)
    assert window.error_rate.value == 0.25
    assert window.meets == "Yes"


def test_every_window_has_the_usual_percentiles_and_those_of_the_constraints() -> None:
    window = window_summary.summary(samples(np.full(100, 0.01)), [latency("1s", 75)], SETTINGS)
    assert [at.percentile for at in window.latencies] == [50, 75, 90, 95, 99]
    assert {at.metric for at in window.latencies} == {"latency"}


@pytest.mark.parametrize(("at_most", "meets"), [("60ms", "Yes"), ("46ms", "Unsure"), ("30ms", "No")])
def test_a_constraint_is_met_surely_only_where_the_interval_is_on_one_side(at_most: str, meets: str) -> None:
    values = np.random.default_rng(1).exponential(0.01, 5000)  # its p99 is 46 ms
    assert window_summary.meets(samples(values), [latency(at_most)]) == meets


def test_the_worst_constraint_decides() -> None:
    values = np.random.default_rng(1).exponential(0.01, 5000)
    all_of = [latency("1s"), latency("46ms"), latency("30ms")]
    assert [window_summary.meets(samples(values), all_of[:count]) for count in range(4)] == [
        "Yes", "Yes", "Unsure", "No",
    ]  # fmt: skip


def test_failed_requests_are_above_every_latency() -> None:
    ok = np.random.default_rng(1).random(3000) > 0.05
    seen = samples(np.full(3000, 0.001), ok=ok)
    assert window_summary.meets(seen, [latency("1s")]) == "No"
    assert window_summary.meets(seen, [latency("1s", 90)]) == "Yes"
    window = window_summary.summary(seen, [latency("1s")], SETTINGS)
    assert window_summary.margin(window, [latency("1s")]) == math.inf


def test_requests_that_still_wait_count_as_slow_where_they_have_waited_longer() -> None:
    """A stall at the end of a window: nothing slow was answered, and yet it was slow."""
    stalled = samples(np.full(1000, 0.01), unfinished=np.full(50, 2.0))
    assert window_summary.meets(stalled, [latency("1s")]) == "No"
    young = samples(np.full(1000, 0.01), unfinished=np.full(50, 0.005))
    assert window_summary.meets(young, [latency("1s")]) == "Yes"


def test_a_window_that_ends_while_a_batch_is_computed_has_waited_no_longer_than_it_has() -> None:
    """15 users of one batch, a moment older than the slowest that was answered: slower than 100 ms is what nobody has seen."""
    limit = latency("100ms")
    seen = samples(np.full(163, 0.03), seconds=0.5, unfinished=np.full(15, 0.045))
    assert window_summary.meets(seen, [limit]) == "Unsure"
    window = window_summary.summary(seen, [limit], SETTINGS)
    assert window_summary.margin(window, [limit]) == pytest.approx(0.45)


def test_a_dead_target_breaks_every_constraint_surely() -> None:
    dead = samples([], unfinished=np.full(4, 10.0))
    window = window_summary.summary(dead, [latency("1s")], SETTINGS)
    assert window.meets == "No"
    assert (window.requests, window.throughput.value, window.latencies) == (0, 0, [])
    assert window_summary.meets(dead, [Constraint(metric="errorRate", at_most="1%")]) == "No"


def test_ttft_without_a_stream_is_not_known() -> None:
    constraint = Constraint(metric="ttft", percentile=90, at_most="1s")
    seen = samples(np.full(100, 0.01))
    assert window_summary.meets(seen, [constraint]) == "Unsure"
    streamed = dataclasses.replace(seen, ttft=np.full(100, 0.2), tokens=np.full(100, 7))
    window = window_summary.summary(streamed, [constraint], SETTINGS)
    assert window.meets == "Yes"
    assert window.tokens_per_second == pytest.approx(70)
    assert window_summary.margin(window, [constraint]) == pytest.approx(0.2)


def test_a_beginning_that_is_dropped_is_dropped_of_tokens_too() -> None:
    """The first second is ten times as slow: in latency, until the first token, and between tokens."""
    values = np.where(np.arange(1000) < 100, 0.1, 0.01) * np.random.default_rng(3).lognormal(0, 0.05, 1000)
    seen = samples(values)
    streamed = dataclasses.replace(seen, ttft=values / 2, itl=values / 4, itl_done=seen.done)
    window = window_summary.summary(streamed, (), SETTINGS)
    assert window.seconds < 9.5
    assert {one.metric for one in window.latencies} == {"latency", "ttft", "itl"}
    assert max(one.value for one in window.latencies) < 0.02


@pytest.mark.parametrize(("text", "value"), [("100ms", 0.1), ("2s", 2.0), ("1%", 0.01), ("0.5%", 0.005)])
def test_limits_are_seconds_or_shares(text: str, value: float) -> None:
    metric = "errorRate" if text.endswith("%") else "latency"
    assert bound_of(Constraint(metric=metric, at_most=text)) == pytest.approx(value)


def test_the_generator_is_the_limit_where_it_is_busy_or_late() -> None:
    calm = samples(np.full(100, 0.01), generator_cpu=0.5, late=0.0)
    for changed, limited in (({}, False), ({"generator_cpu": 0.95}, True), ({"late": 0.2}, True)):
        window = window_summary.summary(dataclasses.replace(calm, **changed), (), SETTINGS)
        assert window.generator_limited is limited


def test_a_warm_up_in_the_window_is_dropped() -> None:
    cold = np.concatenate([np.linspace(0.5, 0.02, 60), np.random.default_rng(2).normal(0.01, 0.0005, 940)])
    window = window_summary.summary(samples(cold), [latency("50ms")], SETTINGS)
    assert 9.2 < window.seconds < 9.6
    assert window.meets == "Yes"


def test_a_growing_queue_is_not_steady() -> None:
    falling_behind = Target(exponential(0.01)).window("open", 130, 10)
    assert not window_summary.summary(falling_behind, (), SETTINGS).steady


def test_hardly_any_steady_window_is_called_unsteady() -> None:
    unsteady = 0
    for seed in range(60):
        closed = Target(steady_service(0.01), 2, seed=seed).window("closed", 4, 5)
        queue = Target(exponential(0.004), seed=seed).window("open", 125, 5)
        unsteady += sum(not window_summary.summary(seen, (), SETTINGS).steady for seen in (closed, queue))
    assert unsteady <= 6  # of 120


def test_95_percent_of_windows_have_the_true_p90_and_throughput_of_a_queue() -> None:
    """M/M/1 of 250/s at 100/s, whole way: cut, steadied, estimated."""
    percentile = throughput = 0
    truth = math.log(10) / (250 - 100)
    for seed in range(100):
        window = window_summary.summary(
            Target(exponential(0.004), seed=seed).window("open", 100, 10), (), SETTINGS
        )
        at = next(at for at in window.latencies if at.percentile == 90)
        percentile += at.low <= truth <= at.high
        throughput += window.throughput.low <= 100 <= window.throughput.high
    assert percentile >= 90
    assert throughput >= 90


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5))
def test_joined_windows_are_one_window(counts: list[int]) -> None:
    parts = [samples(np.full(count, 0.01), seconds=2.0, generator_cpu=0.5) for count in counts]
    whole = joined(parts)
    assert whole.seconds == 2.0 * len(parts)
    assert len(whole.ok) == sum(counts)
    assert np.all(np.diff(whole.done) >= -1e-9)
    assert whole.generator_cpu == pytest.approx(0.5)


def test_windows_of_different_levels_are_not_joined() -> None:
    with pytest.raises(ValueError, match="one level"):
        joined([samples([0.1]), dataclasses.replace(samples([0.1]), level=2)])
