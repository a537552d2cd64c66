"""Whole searches for the highest load, against targets as queueing theory has them; what each end claims is true of the target."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tests.reference.queueing import Batching, Target, exponential, steady_service
from tuner.load.level_search import highest_load, messages
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
MOST_SECONDS = 60.0
"""Of load, of any search with the default windows."""


def p99(at_most: str) -> Constraint:
    return Constraint(metric="latency", percentile=99, at_most=at_most)


@dataclass
class Search:
    state: State
    end: Finished
    levels: list[float]
    seconds: float

    @property
    def result(self) -> Window:
        return self.end.result


def search(
    target: Target | Batching,
    load: Load,
    *constraints: Constraint,
    stop_below: float | None = None,
    safety: float = SETTINGS.safety,
) -> Search:
    """Play the runner of a trial."""
    state = highest_load.begin(load, constraints, replace(SETTINGS, safety=safety), stop_below)
    parts: list[Samples] = []
    levels, seconds = [], 0.0
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        seen = target.window(load.mode, step.level, step.seconds)
        seconds += step.warmup + step.seconds
        levels += [] if step.extends else [step.level]
        parts = [*parts, seen] if step.extends else [seen]
        window = window_summary.summary(joined(parts), constraints, SETTINGS)
        state = highest_load.after(state, window, extends=step.extends)
    return Search(state, step, levels, seconds)


@pytest.mark.parametrize(("servers", "capacity"), [(1, 100), (2, 200), (4, 400)])
def test_a_closed_loop_without_constraints_ends_at_the_knee(servers: int, capacity: float) -> None:
    found = search(Target(steady_service(0.01), servers), Load())
    assert found.end.reason == "Measured"
    assert found.result.throughput.value == pytest.approx(capacity, rel=0.05)
    assert found.levels[:2] == [1, 2]
    assert max(found.levels) <= 4 * servers
    assert found.seconds < 30
    assert found.result.level <= 2 * servers
    assert "no more" in found.end.message


def test_a_closed_loop_finds_the_most_users_that_meet_a_latency() -> None:
    """16 servers of 10 ms behind each other's queue: 50 ms are met by some 80 users, of whom 16 give as much."""
    found = search(Target(steady_service(0.01), 16), Load(), p99("50ms"))
    assert found.result.meets == "Yes"
    assert found.result.throughput.value == pytest.approx(1600, rel=0.06)


def test_users_are_bisected_where_a_limit_is_met_by_few() -> None:
    """Exponential service at four servers: p99 alone is 46 ms, so 60 ms allow hardly a queue."""
    found = search(Target(exponential(0.01), 4), Load(), p99("60ms"))
    levels = sorted(set(found.levels))
    assert found.end.reason == "Measured"
    assert found.result.meets != "No"
    assert 3 <= found.result.level <= 9
    assert all(level == int(level) for level in levels)
    assert found.seconds < MOST_SECONDS


def test_a_spec_that_breaks_a_limit_with_one_user_is_given_up_after_one_short_window() -> None:
    found = search(Target(steady_service(0.2)), Load(), p99("100ms"))
    assert (found.end.reason, found.levels, found.result.meets) == ("BreaksConstraint", [1], "No")
    assert found.seconds < 6
    assert "100ms allowed" in found.end.message


def test_a_limit_that_is_nearly_met_with_one_user_is_not_said_to_be_broken() -> None:
    """p99 is 101 ms; a trial cannot know, and says that it does not."""
    found = search(Target(steady_service(0.09, 0.05)), Load(), p99("100ms"))
    assert (found.end.reason, found.result.meets) == ("Measured", "Unsure")
    assert found.result.level == 1


def test_failures_break_a_latency_limit_as_a_failed_request_has_no_latency() -> None:
    found = search(Target(steady_service(0.01), failing=0.1), Load(), p99("100ms"))
    assert found.end.reason == "BreaksConstraint"
    assert "failed" in found.end.message


def test_an_error_rate_is_a_constraint_of_its_own() -> None:
    limit = Constraint(metric="errorRate", at_most="1%")
    assert search(Target(steady_service(0.01), failing=0.2), Load(), limit).end.reason == "BreaksConstraint"
    assert search(Target(steady_service(0.01)), Load(), limit).end.reason == "Measured"


def test_a_spec_that_cannot_beat_the_best_is_stopped_without_a_whole_window() -> None:
    """One server gives 100 requests/s however many ask; 15 ms are broken by two users, who could give 200."""
    saturated = search(Target(steady_service(0.01)), Load(), p99("50ms"), stop_below=300)
    limited = search(Target(steady_service(0.01)), Load(), p99("15ms"), stop_below=300)
    for found in (saturated, limited):
        assert found.end.reason == "CannotBeatBest"
        assert found.seconds < 13
        assert "300 requests/s" in found.end.message
    assert search(Target(steady_service(0.01)), Load(), p99("50ms"), stop_below=99).end.reason == "Measured"


def test_a_search_stops_early_only_for_specs_that_cannot_win() -> None:
    """The examples reach each end: the property would hold of a search that never stops early, too."""
    reasons: Counter[str] = Counter()

    @settings(max_examples=25, deadline=None, derandomize=True)
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
        target = Target(steady_service(milliseconds / 1000), servers, seed=seed)
        constraint = p99(f"{milliseconds * limit:.3f}ms")
        load = Load(window_seconds=4, max_level="64")
        found = search(target, load, constraint, stop_below=rival * capacity)
        reasons[found.end.reason] += 1
        if found.end.reason == "CannotBeatBest":
            users = math.floor(limit * servers)  # so many have a queue that fits the limit
            assert capacity * min(1, users / servers) < rival * capacity * 1.1
        if found.end.reason == "BreaksConstraint":
            assert limit < 1.6

    check()
    assert set(reasons) == {"CannotBeatBest", "BreaksConstraint", "Measured"}, reasons


@pytest.mark.parametrize(("limit", "capacity"), [("100ms", 54), ("200ms", 77)])
def test_an_open_loop_finds_the_rate_of_a_queue(limit: str, capacity: float) -> None:
    """M/M/1 of 100/s: the p99 is ln(100) / (100 - rate)."""
    found = search(Target(exponential(0.01), seed=2), Load(mode="open", window_seconds=20), p99(limit))
    assert found.end.reason == "Measured"
    assert 0.6 * capacity < found.result.level < 1.25 * capacity


def test_a_few_slow_requests_among_few_do_not_end_the_search() -> None:
    """At 5 requests per second a p99 is the slowest of some: eight servers meet 60 ms at nearly 600 requests per second all the same."""
    load, limit = Load(mode="open", window_seconds=4, warmup_seconds=1), p99("60ms")
    targets = [Target(exponential(0.01), 8, seed=seed) for seed in range(20)]
    rates = [search(target, load, limit).result.throughput.value for target in targets]
    assert min(rates) > 350


def test_what_was_found_meets_the_next_time_too_where_the_limit_was_met_by_chance() -> None:
    """An open loop is near its limit by its nature: of the rates that met it once, some do not a second time."""
    limit = p99("60ms")

    def breaks_again(safety: float, seed: int) -> bool:
        load = Load(mode="open", window_seconds=4, warmup_seconds=1)
        found = search(Target(exponential(0.01), 8, seed=seed), load, limit, safety=safety)
        fresh = Target(exponential(0.01), 8, seed=100 + seed).window("open", found.result.level, 7.5)
        return window_summary.margin(window_summary.summary(fresh, [limit], SETTINGS), [limit]) > 1

    careless = sum(breaks_again(0.0, seed) for seed in range(25))
    careful = sum(breaks_again(SETTINGS.safety, seed) for seed in range(25))
    assert careful <= 1
    assert careless >= careful + 3


def test_a_target_that_refuses_from_so_many_users_is_found_to_work_below() -> None:
    limit = Constraint(metric="errorRate", at_most="1%")
    found = search(Batching(refuses_from=40), Load(window_seconds=2, warmup_seconds=1), limit)
    assert 30 <= found.result.level < 40
    assert found.result.error_rate.value == 0
    assert "failed" in found.end.message


def test_a_load_beside_the_one_found_is_not_measured_again_when_that_one_has_moved() -> None:
    """As real trials did: 48 users were measured beside 97, and then 48, 50, 51 and 52 beside as many more, as less than half is not near."""
    state = highest_load.begin(Load(window_seconds=2, warmup_seconds=1), [p99("100ms")], SETTINGS)
    for level in (1, 8, 40, 400, 176, 88, 239, 62):
        rate = 4000 * level / (level + 25)
        slow = 1.4 * level / rate
        window = Window.model_validate({
            "level": level, "seconds": 0.5, "requests": round(rate / 2), "meets": "No" if slow > 0.1 else "Unsure",
            "throughput": {"value": rate, "low": rate, "high": rate}, "errorRate": {"value": 0, "low": 0, "high": 0},
            "latencies": [{"metric": "latency", "percentile": 99, "value": slow, "low": 0.9 * slow, "high": 1.2 * slow}],
        })  # fmt: skip
        state = replace(state, windows=(*state.windows, window), planned=(*state.planned, 0.5))
    step = highest_load.next_step(state)
    assert isinstance(step, MeasureLevel)
    assert (step.level, step.seconds) == (pytest.approx(128, abs=3), 2.0)


def test_growth_ends_where_more_users_are_not_expected_to_meet_the_limit() -> None:
    """124 users have a p99 of 100 ms."""
    found = search(Batching(), Load(window_seconds=2, warmup_seconds=1), p99("100ms"))
    assert max(found.levels) < 150
    assert len(found.levels) <= 10


def test_a_spec_that_by_its_curves_cannot_beat_the_best_gets_no_whole_window() -> None:
    """2,000 requests/s are its most, with however many users; what single windows say leaves more open."""
    found = search(Batching(), Load(window_seconds=2, warmup_seconds=1), p99("100ms"), stop_below=3000)
    assert found.end.reason == "CannotBeatBest"
    assert max(found.state.planned) < 2


@pytest.mark.parametrize(
    ("load", "said"), [(Load(), "a higher load is not expected to meet that"), (Load(max_level="1"), "no higher load is allowed")]
)  # fmt: skip
def test_an_end_at_the_highest_load_says_why_there_is_none_beyond(load: Load, said: str) -> None:
    state = highest_load.begin(load, [p99("100ms")], SETTINGS)
    state = highest_load.after(
        state,
        window_summary.summary(Batching().window("closed", 1, 10), [p99("100ms")], SETTINGS),
        extends=False,
    )
    assert said in messages.ended(state, state.windows[0], "Measured").message


def test_a_whole_window_that_had_bad_luck_costs_little() -> None:
    """Its p99 is three times as high, and by itself would ask for a fifth of the users."""
    load, limit = Load(window_seconds=2, warmup_seconds=1), p99("100ms")
    calm, stalled = (search(Batching(stalled=which), load, limit).result for which in ((), (0,)))
    assert stalled.throughput.value > 0.8 * calm.throughput.value
    assert stalled.level < calm.level


def test_an_open_loop_without_constraints_ends_where_the_answers_fall_behind() -> None:
    found = search(Target(exponential(0.01), 4), Load(mode="open"))
    assert 320 < found.result.level <= 430
    assert "fell behind" in found.end.message
    assert found.seconds < MOST_SECONDS


def test_levels_that_are_given_are_measured_in_turn_each_a_whole_window() -> None:
    load = Load(levels=["1", "2", "8"], window_seconds=4)
    found = search(Target(steady_service(0.01)), load, p99("50ms"))
    assert found.levels == [1, 2, 8]
    assert [window.level for window in found.state.windows] == [1, 2, 8]
    assert found.result.level == 2
    assert found.end.reason == "Measured"


def test_max_level_is_never_exceeded() -> None:
    found = search(Target(steady_service(0.01), 16), Load(max_level="5"))
    assert max(found.levels) == found.result.level == 5
    assert "no higher load is allowed" in found.end.message


def test_a_target_that_answers_nothing_is_given_up() -> None:
    dead = Target(lambda _: 1e6)
    found = search(dead, Load(), p99("100ms"))
    assert (found.end.reason, found.levels) == ("BreaksConstraint", [1])
    unconstrained = search(dead, Load())
    assert unconstrained.end.reason == "Measured"
    assert "nothing was answered" in unconstrained.end.message


def test_a_busy_generator_is_noted() -> None:
    found = search(Target(steady_service(0.01), busy=0.97), Load())
    assert any(note.startswith("GeneratorLimited") for note in found.end.notes)
    assert found.result.generator_limited


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    servers=st.integers(1, 12),
    milliseconds=st.floats(1, 300),
    spread=st.floats(0.01, 1),
    limit=st.one_of(st.none(), st.floats(1, 1000)),
    mode=st.sampled_from(["closed", "open"]),
    failing=st.sampled_from([0.0, 0.0, 0.02, 0.5]),
    seed=st.integers(0, 1000),
)
def test_every_search_ends_with_a_load_between_those_that_it_measured(
    servers: int,
    milliseconds: float,
    spread: float,
    limit: float | None,
    mode: str,
    failing: float,
    seed: int,
) -> None:
    target = Target(steady_service(milliseconds / 1000, spread), servers, failing=failing, seed=seed)
    constraints = () if limit is None else (p99(f"{limit:.3f}ms"),)
    load = Load(
        mode=mode, window_seconds=2, warmup_seconds=1, max_level="256" if mode == "closed" else "1000"
    )
    found = search(target, load, *constraints)
    assert len(found.state.windows) <= 2 * SETTINGS.most_levels
    levels = [window.level for window in found.state.windows]
    assert min(levels) <= found.result.level <= max(levels)
    assert found.end.reason in {"Measured", "BreaksConstraint"}
    # The last window of a level speaks for it.
    least = min(reversed(found.state.windows), key=lambda window: window.level)
    assert (found.end.reason == "BreaksConstraint") == (least.meets == "No")
    assert found.seconds <= 20 * 2
    assert len(found.state.planned) == len(found.state.windows)
