"""The summary of a window's samples: counts, percentiles, constraints, and their certainty."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources.tuning.experiment import Constraint
from tests.reference.queueing import QueueingTarget, exponential, steady_service
from tuner.constraints import bound_of
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined


def samples(latency: list[float] | np.ndarray, *, seconds: float = 10.0, **changed: object) -> Samples:
    """Return evenly spaced answers over a window."""
    values = np.asarray(latency, dtype=np.float64)
    done = (np.arange(len(values)) + 0.5) * seconds / max(1, len(values))
    answered = Samples(
        mode="closed",
        level=1,
        seconds=seconds,
        intended=done - values,
        latency=values,
        ok=np.ones(len(values), dtype=bool),
        tokens=np.zeros(len(values), dtype=np.int64),
        prompt_tokens=np.zeros(len(values), dtype=np.int64),
        ttft=np.full(len(values), -1.0),
        itl=np.empty(0),
        itl_done=np.empty(0),
        unfinished=np.empty(0),
        longest=30.0,
    )
    return dataclasses.replace(answered, **changed)


def latency(at_most: str, percentile: int = 99) -> Constraint:
    return Constraint(metric="latency", percentile=percentile, at_most=at_most)


def test_throughput_excludes_failures() -> None:
    ok = np.arange(2000) % 4 != 0
    window = window_summary.summary(samples(np.full(2000, 0.01), ok=ok), ())
    assert window.throughput.value == pytest.approx(150)
    assert (window.requests, window.errors) == (2000, 500)
    assert window.error_rate.value == 0.25
    assert window.meets == "Yes"


def test_window_has_the_usual_percentiles_and_those_of_constraints() -> None:
    window = window_summary.summary(samples(np.full(100, 0.01)), [latency("1s", 75)])
    assert [at.percentile for at in window.latencies] == [50, 75, 90, 95, 99]
    assert {at.metric for at in window.latencies} == {"latency"}


@pytest.mark.parametrize(("at_most", "meets"), [("60ms", "Yes"), ("46ms", "Unsure"), ("30ms", "No")])
def test_constraint_is_unsure_when_the_limit_is_within_the_interval(at_most: str, meets: str) -> None:
    values = np.random.default_rng(1).exponential(0.01, 5000)  # its p99 is 46 ms
    assert window_summary.meets(samples(values), [latency(at_most)]) == meets


def test_worst_constraint_decides() -> None:
    values = np.random.default_rng(1).exponential(0.01, 5000)
    constraints = [latency("1s"), latency("46ms"), latency("30ms")]
    answers = [window_summary.meets(samples(values), constraints[:count]) for count in range(4)]
    assert answers == ["Yes", "Yes", "Unsure", "No"]


def test_failed_requests_are_above_every_latency() -> None:
    ok = np.random.default_rng(1).random(3000) > 0.05
    measured = samples(np.full(3000, 0.001), ok=ok)
    assert window_summary.meets(measured, [latency("1s")]) == "No"
    assert window_summary.meets(measured, [latency("1s", 90)]) == "Yes"
    window = window_summary.summary(measured, [latency("1s")])
    assert window_summary.worst_ratio(window, [latency("1s")]) == math.inf


def test_unanswered_requests_count_as_slow_when_older_than_the_percentile() -> None:
    """A stall at the end of a window has no slow answers."""
    stalled = samples(np.full(1000, 0.01), unfinished=np.full(50, 2.0))
    assert window_summary.meets(stalled, [latency("1s")]) == "No"
    young = samples(np.full(1000, 0.01), unfinished=np.full(50, 0.005))
    assert window_summary.meets(young, [latency("1s")]) == "Yes"


def test_limit_is_unsure_when_the_window_ends_during_a_batch() -> None:
    """15 users of one batch have waited slightly longer than the slowest answer, and less than 100 ms."""
    limit = latency("100ms")
    measured = samples(np.full(163, 0.03), seconds=0.5, unfinished=np.full(15, 0.045))
    assert window_summary.meets(measured, [limit]) == "Unsure"
    window = window_summary.summary(measured, [limit])
    assert window_summary.worst_ratio(window, [limit]) == pytest.approx(0.45)


def test_dead_target_breaks_every_constraint() -> None:
    dead = samples([], unfinished=np.full(4, 10.0))
    window = window_summary.summary(dead, [latency("1s")])
    assert window.meets == "No"
    assert (window.requests, window.throughput.value, window.latencies) == (0, 0, [])
    assert window_summary.meets(dead, [Constraint(metric="errorRate", at_most="1%")]) == "No"


def test_answers_longer_than_the_window_are_no_failures() -> None:
    """Users of a language model: answers of 0.8 to 12.8 s, in a window of 7.5 s."""
    answers = np.geomspace(0.8, 12.8, 40)
    chats = samples(answers, seconds=7.5, unfinished=np.geomspace(0.5, 12.5, 12), ttft=np.full(40, 0.2))
    limits = [Constraint(metric="ttft", at_most="500ms"), Constraint(metric="errorRate", at_most="5%")]
    window = window_summary.summary(chats, limits)
    assert window.error_rate.value == 0
    assert window_summary.worst_ratio(window, limits) == pytest.approx(0.4)
    assert window.meets == "Unsure", "40 requests have no p99"
    assert window_summary.meets(chats, limits[1:]) != "No"


@pytest.mark.parametrize(("age", "failed"), [(10.0, 5), (9.9, 0)])
def test_request_without_an_answer_for_the_whole_window_failed_when_others_are_quick(
    age: float, failed: int
) -> None:
    hung = samples(np.full(995, 0.01), unfinished=np.full(5, age))
    assert window_summary.summary(hung, ()).error_rate.value == pytest.approx(failed / 1000)


def test_streams_without_a_token_count_as_slow_when_older_than_the_percentile() -> None:
    """Nothing begins any more: the streams that have begun are quick."""
    limit = Constraint(metric="ttft", at_most="500ms")
    chats = samples(np.full(1000, 0.5), ttft=np.full(1000, 0.2), unfinished=np.full(50, 3.0))
    assert window_summary.meets(chats, [limit]) == "Yes"
    stalled = dataclasses.replace(chats, silent=np.full(50, 3.0))
    assert window_summary.meets(stalled, [limit]) == "No"
    window = window_summary.summary(stalled, [limit])
    assert window_summary.worst_ratio(window, [limit]) == pytest.approx(6)
    assert window_summary.meets(samples([], silent=np.full(4, 3.0)), [limit]) != "Yes"


def test_ttft_is_unsure_without_a_stream() -> None:
    constraint = Constraint(metric="ttft", percentile=90, at_most="1s")
    measured = samples(np.full(100, 0.01))
    assert window_summary.meets(measured, [constraint]) == "Unsure"
    streamed = dataclasses.replace(measured, ttft=np.full(100, 0.2), tokens=np.full(100, 7))
    window = window_summary.summary(streamed, [constraint])
    assert window.meets == "Yes"
    assert window.tokens_per_second == pytest.approx(70)
    assert window_summary.worst_ratio(window, [constraint]) == pytest.approx(0.2)


def test_prompt_tokens_are_those_of_answered_requests() -> None:
    ok = np.arange(100) % 2 == 0
    counts = np.where(ok, 30, 0)
    window = window_summary.summary(samples(np.full(100, 0.01), ok=ok, prompt_tokens=counts), ())
    assert window.prompt_tokens_per_second == pytest.approx(150), "50 answers in 10 s"


def test_prompt_tokens_are_unknown_when_an_answer_has_no_count() -> None:
    """Counts of a part of the answers would make the prompts seem too short."""
    counts = np.where(np.arange(100) == 99, 0, 30)
    window = window_summary.summary(samples(np.full(100, 0.01), prompt_tokens=counts), ())
    assert window.prompt_tokens_per_second == 0


def test_dropped_beginning_includes_tokens() -> None:
    """The first second is ten times as slow in latency, ttft and itl."""
    values = np.where(np.arange(1000) < 100, 0.1, 0.01) * np.random.default_rng(3).lognormal(0, 0.05, 1000)
    measured = samples(values)
    streamed = dataclasses.replace(
        measured,
        ttft=values / 2,
        itl=values / 4,
        itl_done=measured.done,
        prompt_tokens=np.where(np.arange(1000) < 50, 1000, 3),
    )
    window = window_summary.summary(streamed, ())
    assert window.seconds < 9.5
    assert window.prompt_tokens_per_second == pytest.approx(3 * window.throughput.value)
    assert {at.metric for at in window.latencies} == {"latency", "ttft", "itl"}
    assert max(at.value for at in window.latencies) < 0.02


@pytest.mark.parametrize(("text", "value"), [("100ms", 0.1), ("2s", 2.0), ("1%", 0.01), ("0.5%", 0.005)])
def test_limits_are_seconds_or_shares(text: str, value: float) -> None:
    metric = "errorRate" if text.endswith("%") else "latency"
    assert bound_of(Constraint(metric=metric, at_most=text)) == pytest.approx(value)


def test_generator_is_the_limit_when_busy_or_late() -> None:
    calm = samples(np.full(100, 0.01), generator_cpu=0.5, late=0.0)
    for changed, limited in (({}, False), ({"generator_cpu": 0.95}, True), ({"late": 0.2}, True)):
        window = window_summary.summary(dataclasses.replace(calm, **changed), ())
        assert window.generator_limited is limited


def test_warm_up_in_the_window_is_dropped() -> None:
    cold = np.concatenate([np.linspace(0.5, 0.02, 60), np.random.default_rng(2).normal(0.01, 0.0005, 940)])
    window = window_summary.summary(samples(cold), [latency("50ms")])
    assert 9.2 < window.seconds < 9.6
    assert window.meets == "Yes"


def test_growing_queue_is_not_steady() -> None:
    falling_behind = QueueingTarget(exponential(0.01)).window("open", 130, 10)
    assert not window_summary.summary(falling_behind, ()).steady


def test_few_steady_windows_are_reported_unsteady() -> None:
    unsteady = 0
    for seed in range(60):
        closed = QueueingTarget(steady_service(0.01), 2, seed=seed).window("closed", 4, 5)
        queue = QueueingTarget(exponential(0.004), seed=seed).window("open", 125, 5)
        unsteady += sum(not window_summary.summary(window, ()).steady for window in (closed, queue))
    assert unsteady <= 6  # of 120


def test_95_percent_of_windows_have_the_true_p90_and_throughput_of_a_queue() -> None:
    """M/M/1 with 250/s at 100/s."""
    percentile = throughput = 0
    truth = math.log(10) / (250 - 100)
    for seed in range(100):
        window = window_summary.summary(
            QueueingTarget(exponential(0.004), seed=seed).window("open", 100, 10), ()
        )
        at = next(at for at in window.latencies if at.percentile == 90)
        percentile += at.low <= truth <= at.high
        throughput += window.throughput.low <= 100 <= window.throughput.high
    assert percentile >= 90
    assert throughput >= 90


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5))
def test_joined_windows_are_one_window(counts: list[int]) -> None:
    parts = [
        samples(np.full(count, 0.01), seconds=2.0, generator_cpu=0.5, prompt_tokens=np.full(count, 3))
        for count in counts
    ]
    window = joined(parts)
    assert window.prompt_tokens.sum() == 3 * sum(counts)
    assert window.seconds == 2.0 * len(parts)
    assert len(window.ok) == sum(counts)
    assert np.all(np.diff(window.done) >= -1e-9)
    assert window.generator_cpu == pytest.approx(0.5)


def test_windows_of_different_levels_are_not_joined() -> None:
    with pytest.raises(ValueError, match="one level"):
        joined([samples([0.1]), dataclasses.replace(samples([0.1]), level=2)])
