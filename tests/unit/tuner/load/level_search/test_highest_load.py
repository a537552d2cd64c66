"""Complete searches for the highest load, against targets of queueing theory: each end's claim is true."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Estimate, LatencyAt, Window
from tests.reference.queueing import BatchingTarget, Pipeline, QueueingTarget, exponential, steady_service
from tuner.load.level_search import highest_load, load_model, messages, results
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.level_search.verdicts import level_verdicts
from tuner.load.windows import backlog, window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
MOST_SECONDS = 60.0
"""Limit of a search with the default windows."""


NO_ERRORS = Constraint(metric="errorRate", at_most="1%")


def p99(at_most: str) -> Constraint:
    return Constraint(metric="latency", percentile=99, at_most=at_most)


@dataclass
class SearchResult:
    state: State
    end: Finished
    levels: list[float]
    seconds: float

    @property
    def result(self) -> Window:
        return self.end.result


def search(
    target: QueueingTarget | BatchingTarget,
    load: ExperimentLoad,
    *constraints: Constraint,
    stop_below: float | None = None,
) -> SearchResult:
    """Run the search as a trial does."""
    state = highest_load.begin(load, constraints, SETTINGS, stop_below)
    parts: list[Samples] = []
    levels, seconds = [], 0.0
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        samples = target.window(load.mode, step.level, step.seconds)
        seconds += step.warmup + step.seconds
        levels += [] if step.extends else [step.level]
        parts = [*parts, samples] if step.extends else [samples]
        window = window_summary.summary(joined(parts), constraints)
        state = highest_load.after(state, window, extends=step.extends)
    return SearchResult(state, step, levels, seconds)


@pytest.mark.parametrize(("servers", "capacity"), [(1, 100), (2, 200), (4, 400)])
def test_closed_loop_ends_at_the_knee_without_constraints(servers: int, capacity: float) -> None:
    outcome = search(QueueingTarget(steady_service(0.01), servers), ExperimentLoad())
    assert outcome.end.reason == "Measured"
    assert outcome.result.throughput.value == pytest.approx(capacity, rel=0.05)
    assert outcome.levels[:2] == [1, 2]
    assert max(outcome.levels) <= 4 * servers
    assert outcome.seconds < 30
    assert outcome.result.level <= 2 * servers
    assert "no more" in outcome.end.message


def test_closed_loop_reaches_the_full_throughput_within_a_latency_limit() -> None:
    """16 servers of 10 ms and one queue: some 80 users meet 50 ms, and 16 give the same throughput."""
    outcome = search(QueueingTarget(steady_service(0.01), 16), ExperimentLoad(), p99("50ms"))
    assert outcome.result.meets == "Yes"
    assert outcome.result.throughput.value == pytest.approx(1600, rel=0.06)


def test_users_are_bisected_when_few_meet_the_limit() -> None:
    """Exponential service at four servers: the p99 without a queue is 46 ms, so 60 ms allow a short queue."""
    outcome = search(QueueingTarget(exponential(0.01), 4), ExperimentLoad(), p99("60ms"))
    levels = sorted(set(outcome.levels))
    assert outcome.end.reason == "Measured"
    assert outcome.result.meets != "No"
    assert 3 <= outcome.result.level <= 9
    assert all(level == int(level) for level in levels)
    assert outcome.seconds < MOST_SECONDS


def test_search_ends_after_one_short_window_when_one_user_breaks_the_limit() -> None:
    outcome = search(QueueingTarget(steady_service(0.2)), ExperimentLoad(), p99("100ms"))
    assert (outcome.end.reason, outcome.levels, outcome.result.meets) == ("BreaksConstraint", [1], "No")
    assert outcome.seconds < 6
    assert "100ms allowed" in outcome.end.message


def test_result_is_unsure_when_one_user_nearly_meets_the_limit() -> None:
    """The p99 is 101 ms, which a trial cannot distinguish from 100 ms."""
    outcome = search(QueueingTarget(steady_service(0.09, 0.05)), ExperimentLoad(), p99("100ms"))
    assert (outcome.end.reason, outcome.result.meets) == ("Measured", "Unsure")
    assert outcome.result.level == 1


def test_failed_requests_break_a_latency_limit() -> None:
    outcome = search(QueueingTarget(steady_service(0.01), failing=0.1), ExperimentLoad(), p99("100ms"))
    assert outcome.end.reason == "BreaksConstraint"
    assert "failed" in outcome.end.message


def test_error_rate_is_a_constraint() -> None:
    limit = Constraint(metric="errorRate", at_most="1%")
    assert (
        search(QueueingTarget(steady_service(0.01), failing=0.2), ExperimentLoad(), limit).end.reason
        == "BreaksConstraint"
    )
    assert search(QueueingTarget(steady_service(0.01)), ExperimentLoad(), limit).end.reason == "Measured"


def test_search_ends_without_a_whole_window_when_the_spec_cannot_beat_the_best() -> None:
    """One server gives 100 requests/s to any number of users; two users, who could give 200, break 15 ms."""
    saturated = search(QueueingTarget(steady_service(0.01)), ExperimentLoad(), p99("50ms"), stop_below=300)
    limited = search(QueueingTarget(steady_service(0.01)), ExperimentLoad(), p99("15ms"), stop_below=300)
    for outcome in (saturated, limited):
        assert outcome.end.reason == "CannotBeatBest"
        assert outcome.seconds < 13
        assert "300 requests/s" in outcome.end.message
    assert (
        search(QueueingTarget(steady_service(0.01)), ExperimentLoad(), p99("50ms"), stop_below=99).end.reason
        == "Measured"
    )


@pytest.mark.hypothesis
def test_search_ends_early_only_for_specs_that_cannot_win() -> None:
    """The examples reach each end, as the property also holds for a search that never ends early."""
    reasons: Counter[str] = Counter()

    @settings(max_examples=25)
    @given(
        servers=st.integers(1, 8),
        milliseconds=st.floats(2, 40),
        limit=st.floats(0.5, 20),
        rival=st.floats(0.2, 1.5),
        seed=st.integers(0, 1000),
    )
    @example(servers=1, milliseconds=10, limit=5, rival=1.5, seed=0)
    @example(servers=4, milliseconds=20, limit=10, rival=1.3, seed=1)
    @example(servers=1, milliseconds=10, limit=0.5, rival=0.2, seed=2)
    @example(servers=4, milliseconds=20, limit=10, rival=0.5, seed=3)
    def check(servers: int, milliseconds: float, limit: float, rival: float, seed: int) -> None:
        capacity = 1000 * servers / milliseconds
        target = QueueingTarget(steady_service(milliseconds / 1000), servers, seed=seed)
        constraint = p99(f"{milliseconds * limit:.3f}ms")
        load = ExperimentLoad(window_seconds=4, max_level="64")
        outcome = search(target, load, constraint, stop_below=rival * capacity)
        reasons[outcome.end.reason] += 1
        if outcome.end.reason == "CannotBeatBest":
            users = math.floor(limit * servers)  # whose queue fits the limit
            assert capacity * min(1, users / servers) < rival * capacity * 1.1
        if outcome.end.reason == "BreaksConstraint":
            assert limit < 1.6

    check()
    assert set(reasons) == {"CannotBeatBest", "BreaksConstraint", "Measured"}, reasons


def test_search_does_not_end_early_when_a_measured_load_beats_the_best() -> None:
    """Two users on two servers do not queue: their p99 is 1.26 service times of 1.5, at the full capacity."""
    target = QueueingTarget(steady_service(0.002), 2, seed=0)
    outcome = search(target, ExperimentLoad(window_seconds=4, max_level="64"), p99("3ms"), stop_below=750)
    assert (outcome.end.reason, outcome.result.level) == ("Measured", 2)


@pytest.mark.parametrize(("limit", "capacity"), [("100ms", 54), ("200ms", 77)])
def test_open_loop_finds_the_rate_of_a_queue(limit: str, capacity: float) -> None:
    """M/M/1 with 100/s: the p99 is ln(100) / (100 - rate)."""
    outcome = search(
        QueueingTarget(exponential(0.01), seed=2), ExperimentLoad(mode="open", window_seconds=20), p99(limit)
    )
    assert outcome.end.reason == "Measured"
    assert 0.6 * capacity < outcome.result.level < 1.25 * capacity


def test_search_continues_when_a_few_of_few_requests_are_slow() -> None:
    """At 5 requests/s the p99 is the slowest of some twenty; eight servers meet 60 ms at nearly 600/s."""
    load, limit = ExperimentLoad(mode="open", window_seconds=4, warmup_seconds=1), p99("60ms")
    targets = [QueueingTarget(exponential(0.01), 8, seed=seed) for seed in range(20)]
    rates = [search(target, load, limit).result.throughput.value for target in targets]
    assert min(rates) > 350


def test_allowance_makes_the_result_meet_the_limit_in_another_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open loop ends near its limit, where some rates meet it in one window only by chance."""
    limit = p99("60ms")

    def breaks_again(seed: int) -> bool:
        load = ExperimentLoad(mode="open", window_seconds=4, warmup_seconds=1)
        outcome = search(QueueingTarget(exponential(0.01), 8, seed=seed), load, limit)
        again = QueueingTarget(exponential(0.01), 8, seed=100 + seed).window(
            "open", outcome.result.level, 7.5
        )
        return window_summary.worst_ratio(window_summary.summary(again, [limit]), [limit]) > 1

    careful = sum(breaks_again(seed) for seed in range(25))
    monkeypatch.setattr(load_model, "SAFETY", 0.0)
    careless = sum(breaks_again(seed) for seed in range(25))
    assert careful <= 1
    assert careless >= careful + 3


def test_result_is_below_the_users_that_the_target_refuses() -> None:
    limit = Constraint(metric="errorRate", at_most="1%")
    outcome = search(
        BatchingTarget(refuses_from=40), ExperimentLoad(window_seconds=2, warmup_seconds=1), limit
    )
    assert 30 <= outcome.result.level < 40
    assert outcome.result.error_rate.value == 0
    assert "failed" in outcome.end.message


def test_moved_result_gets_no_further_near_windows() -> None:
    """A defect of real trials: near 97 users 48 were measured, and then 50, 51 and 52 as the result moved."""
    state = highest_load.begin(ExperimentLoad(window_seconds=2, warmup_seconds=1), [p99("100ms")], SETTINGS)
    for level in (1, 8, 40, 400, 176, 88, 239, 62):
        rate = 4000 * level / (level + 25)
        slow = 1.4 * level / rate
        window = Window(
            level=level,
            seconds=0.5,
            requests=round(rate / 2),
            meets="No" if slow > 0.1 else "Unsure",
            throughput=Estimate(value=rate, low=rate, high=rate),
            error_rate=Estimate(value=0, low=0, high=0),
            latencies=[
                LatencyAt(metric="latency", percentile=99, value=slow, low=0.9 * slow, high=1.2 * slow)
            ],
        )
        state = replace(state, windows=(*state.windows, window), planned=(*state.planned, 0.5))
    step = highest_load.next_step(state)
    assert isinstance(step, MeasureLevel)
    assert (step.level, step.seconds) == (pytest.approx(128, abs=3), 2.0)


def test_growth_ends_when_more_users_are_expected_to_break_the_limit() -> None:
    """124 users have a p99 of 100 ms."""
    outcome = search(BatchingTarget(), ExperimentLoad(window_seconds=2, warmup_seconds=1), p99("100ms"))
    assert max(outcome.levels) < 150
    assert len(outcome.levels) <= 10


def test_search_ends_without_a_whole_window_when_the_curves_exclude_the_best() -> None:
    """The target gives at most 2,000 requests/s; single windows do not exclude more."""
    outcome = search(
        BatchingTarget(), ExperimentLoad(window_seconds=2, warmup_seconds=1), p99("100ms"), stop_below=3000
    )
    assert outcome.end.reason == "CannotBeatBest"
    assert max(outcome.state.planned) < 2


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (ExperimentLoad(), "a higher load is not expected to meet the constraints"),
        (ExperimentLoad(max_level="1"), "no higher load is allowed"),
    ],
)
def test_message_explains_why_no_higher_load_was_tried(load: ExperimentLoad, reason: str) -> None:
    state = highest_load.begin(load, [p99("100ms")], SETTINGS)
    state = highest_load.after(
        state,
        window_summary.summary(BatchingTarget().window("closed", 1, 10), [p99("100ms")]),
        extends=False,
    )
    assert reason in messages.ended(state, state.windows[0], "Measured").message


def test_one_stalled_window_lowers_the_result_little() -> None:
    """Its p99 is three times as high, which alone would allow a fifth of the users."""
    load, limit = ExperimentLoad(window_seconds=2, warmup_seconds=1), p99("100ms")
    calm, stalled = (search(BatchingTarget(stalled=windows), load, limit).result for windows in ((), (0,)))
    assert stalled.throughput.value > 0.8 * calm.throughput.value
    assert stalled.level < calm.level


def test_open_loop_ends_where_answers_fall_behind_without_constraints() -> None:
    outcome = search(QueueingTarget(exponential(0.01), 4), ExperimentLoad(mode="open"))
    assert 320 < outcome.result.level <= 430
    assert "fell behind" in outcome.end.message
    assert outcome.seconds < MOST_SECONDS


@pytest.mark.parametrize(("mode", "levels"), [("open", []), ("open", ["5", "50", "100"]), ("closed", [])])
def test_load_settles_for_the_duration_of_an_answer_when_the_rate_changes(
    mode: str, levels: list[str]
) -> None:
    """Answers of 2 s: for as long after a change, as many come as at the rate before it."""
    load = ExperimentLoad(mode=mode, levels=levels, window_seconds=20, warmup_seconds=1, max_level="100")
    state = highest_load.begin(load, [], SETTINGS)
    target = QueueingTarget(steady_service(2.0, 0.01), 1000)
    warmups = []
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        samples = target.window(load.mode, step.level, step.seconds)
        warmups += [] if step.extends else [step.warmup]
        state = highest_load.after(state, window_summary.summary(samples, []), extends=step.extends)
    assert warmups[0] == 1
    assert all(2.0 < each < 2.2 if mode == "open" else each == 0.25 for each in warmups[1:])
    assert len(warmups) > 2


def piped(
    load: ExperimentLoad, seconds: float, *constraints: Constraint, stop_below: float | None = None
) -> Finished:
    """Search for the highest load of a pipeline that is empty at first."""
    state = highest_load.begin(load, constraints, SETTINGS, stop_below)
    target, parts = Pipeline(seconds), list[Samples]()
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        if step.warmup:
            target.run(load.mode, step.level, step.warmup)
        samples = target.run(load.mode, step.level, step.seconds)
        parts = [*parts, samples] if step.extends else [samples]
        window = window_summary.summary(joined(parts), constraints)
        state = highest_load.after(state, window, extends=step.extends)
    return step


@pytest.mark.parametrize(("levels", "rate"), [([], 40), (["5"], 5), (["5", "20"], 20)])
@pytest.mark.parametrize("stop_below", [None, 10.0])
def test_first_rate_is_measured_again_when_answers_take_longer_than_its_warm_up(
    levels: list[str], rate: float, stop_below: float | None
) -> None:
    load = ExperimentLoad(mode="open", levels=levels, max_level=None if levels else "40")
    end = piped(load, 8.0, stop_below=None if levels else stop_below)
    assert (end.reason, end.result.meets) == ("Measured", "Yes")
    assert end.result.throughput.value == pytest.approx(rate, rel=0.05)


def test_window_whose_load_had_not_settled_is_on_no_curve() -> None:
    target = Pipeline(8.0)
    filling, settled = (window_summary.summary(target.run("open", 5.0, 10.0), ()) for _ in range(2))
    assert (filling.kept_up, settled.kept_up) == (False, True)
    begun = highest_load.begin(ExperimentLoad(mode="open"), (), SETTINGS)
    state = replace(begun, windows=(filling, settled), planned=(10.0, 10.0))
    model = results.model_of(state, level_verdicts(state))
    assert model is not None
    assert model.windows == (settled,)


@pytest.mark.parametrize("levels", [[], ["1"]])
def test_load_without_an_answer_is_held_until_requests_would_fail(levels: list[str]) -> None:
    end = piped(ExperimentLoad(levels=levels, max_level=None if levels else "1"), 20.0, NO_ERRORS)
    assert (end.reason, end.result.errors) == ("Measured", 0)
    assert end.result.throughput.value > 0


def open_window(due: np.ndarray, latency: np.ndarray | float) -> Samples:
    """Return a window of 2.5 s at 400 requests/s of these requests."""
    done = due + latency
    kept = (done >= 0) & (done < 2.5)
    return Samples(
        mode="open",
        level=400.0,
        seconds=2.5,
        intended=due[kept],
        latency=(done - due)[kept],
        ok=np.ones(int(kept.sum()), dtype=bool),
        tokens=np.zeros(int(kept.sum()), dtype=np.int64),
        prompt_tokens=np.zeros(int(kept.sum()), dtype=np.int64),
        ttft=np.full(int(kept.sum()), -1.0),
        itl=np.empty(0),
        itl_done=np.empty(0),
        unfinished=2.5 - due[done >= 2.5],
        longest=30.0,
    )


def queued(due: np.ndarray, service: float) -> np.ndarray:
    """Return the latencies at one server."""
    number = np.arange(len(due))
    return np.asarray(np.maximum.accumulate(due - service * number) + service * (number + 1) - due)


BURSTS = np.repeat(np.arange(0.45, 2.5, 0.5), 200)


@pytest.mark.parametrize(
    ("samples", "kept_up"),
    [
        pytest.param(open_window(np.empty(0), 0.0), True, id="silence of a recording"),
        pytest.param(open_window(np.arange(-2.0, 2.5, 0.0025), 2.0), True, id="answers of 2 s"),
        pytest.param(open_window(BURSTS, queued(BURSTS, 0.001)), True, id="bursts, one at the end"),
        pytest.param(open_window(BURSTS, queued(BURSTS, 0.004)), False, id="bursts that wait for the last"),
        pytest.param(open_window(np.arange(0.0, 2.5, 0.0025), 5.0), False, id="no answer"),
    ],
)
def test_rate_is_behind_when_the_waiting_requests_grow(samples: Samples, *, kept_up: bool) -> None:
    state = replace(highest_load.begin(ExperimentLoad(mode="open"), [], SETTINGS), planned=(2.5,))
    window = window_summary.summary(samples, [])
    (verdict,) = level_verdicts(replace(state, windows=(window,)))
    assert verdict.kept_up is kept_up


def test_failed_requests_of_a_rate_are_not_answered() -> None:
    quick = open_window(np.arange(0.0, 2.49, 0.0025), 0.005)
    for failing, kept_up in ((0.02, True), (0.5, False)):
        ok = np.arange(len(quick.ok)) % 100 >= 100 * failing
        assert backlog.keeps_up(replace(quick, ok=ok)) is kept_up


def test_windows_of_earlier_releases_are_behind_when_fewer_were_answered_than_their_rate() -> None:
    state = highest_load.begin(ExperimentLoad(mode="open"), [], SETTINGS)
    for rate, kept_up in ((100.0, True), (50.0, False)):
        window = Window(
            level=100.0,
            seconds=10.0,
            requests=1000,
            throughput=Estimate(value=rate, low=rate, high=rate),
            error_rate=Estimate(value=0, low=0, high=0),
        )
        (verdict,) = level_verdicts(replace(state, windows=(window,), planned=(10.0,)))
        assert verdict.kept_up is kept_up


@pytest.mark.parametrize(
    ("load", "least"),
    [
        (ExperimentLoad(), 20 * 10),
        (ExperimentLoad(window_seconds=600, levels=[str(users) for users in range(1, 9)]), 8 * 600),
        (ExperimentLoad(window_seconds=3600, warmup_seconds=3600), 20 * 3600),
    ],
)
def test_limit_of_a_search_is_more_than_the_time_of_its_windows(load: ExperimentLoad, least: float) -> None:
    assert highest_load.most_seconds(load, SETTINGS) > least


def test_given_levels_are_measured_in_turn() -> None:
    load = ExperimentLoad(levels=["1", "2", "8"], window_seconds=4)
    outcome = search(QueueingTarget(steady_service(0.01)), load, p99("50ms"))
    assert outcome.levels == [1, 2, 8]
    assert [window.level for window in outcome.state.windows] == [1, 2, 8]
    assert outcome.result.level == 2
    assert outcome.end.reason == "Measured"


def test_max_level_is_never_exceeded() -> None:
    outcome = search(QueueingTarget(steady_service(0.01), 16), ExperimentLoad(max_level="5"))
    assert max(outcome.levels) == outcome.result.level == 5
    assert "no higher load is allowed" in outcome.end.message


def test_search_ends_when_the_target_answers_nothing() -> None:
    dead = QueueingTarget(lambda _: 1e6)
    outcome = search(dead, ExperimentLoad(), p99("100ms"))
    assert (outcome.end.reason, outcome.levels) == ("BreaksConstraint", [1])
    unconstrained = search(dead, ExperimentLoad())
    assert unconstrained.end.reason == "Measured"
    assert "nothing was answered" in unconstrained.end.message


def test_busy_generator_is_noted() -> None:
    outcome = search(QueueingTarget(steady_service(0.01), busy=0.97), ExperimentLoad())
    assert any(note.startswith("GeneratorLimited") for note in outcome.end.notes)
    assert outcome.result.generator_limited


@settings(max_examples=25)
@given(
    servers=st.integers(1, 12),
    milliseconds=st.floats(1, 300),
    spread=st.floats(0.01, 1),
    limit=st.one_of(st.none(), st.floats(1, 1000)),
    mode=st.sampled_from(["closed", "open"]),
    failing=st.sampled_from([0.0, 0.0, 0.02, 0.5]),
    seed=st.integers(0, 1000),
)
def test_result_is_between_the_measured_loads(
    servers: int,
    milliseconds: float,
    spread: float,
    limit: float | None,
    mode: str,
    failing: float,
    seed: int,
) -> None:
    target = QueueingTarget(steady_service(milliseconds / 1000, spread), servers, failing=failing, seed=seed)
    constraints = () if limit is None else (p99(f"{limit:.3f}ms"),)
    load = ExperimentLoad(
        mode=mode, window_seconds=2, warmup_seconds=1, max_level="256" if mode == "closed" else "1000"
    )
    outcome = search(target, load, *constraints)
    assert len(outcome.state.windows) <= 2 * highest_load.MOST_LEVELS
    levels = [window.level for window in outcome.state.windows]
    assert min(levels) <= outcome.result.level <= max(levels)
    assert outcome.end.reason in {"Measured", "BreaksConstraint"}
    # The last window of a level counts.
    least = min(reversed(outcome.state.windows), key=lambda window: window.level)
    assert (outcome.end.reason == "BreaksConstraint") == (least.meets == "No")
    assert outcome.seconds <= 20 * 2
    assert len(outcome.state.planned) == len(outcome.state.windows)
