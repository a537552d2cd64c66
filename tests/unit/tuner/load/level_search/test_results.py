"""What a trial found, read again from the windows in its status."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tests.reference.queueing import Batching, Target, exponential
from tuner.load.level_search import highest_load, results
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
LIMIT = Constraint(metric="latency", percentile=99, at_most="60ms")
CLOSED, OPEN = Load(window_seconds=4, warmup_seconds=1), Load(mode="open", window_seconds=4, warmup_seconds=1)


def measured(
    target: Target | Batching, load: Load, limits: Sequence[Constraint] = (LIMIT,)
) -> tuple[State, Finished]:
    """Play the runner of a trial."""
    state, parts = highest_load.begin(load, limits, SETTINGS), list[Samples]()
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        seen = target.window(load.mode, step.level, step.seconds)
        parts = [*parts, seen] if step.extends else [seen]
        state = highest_load.after(
            state, window_summary.summary(joined(parts), limits, SETTINGS), extends=step.extends
        )
    return state, step


def read_again(state: State) -> State:
    """Return the state as a Trial's status has it."""
    windows = [Window.model_validate(one.model_dump(by_alias=True)) for one in state.windows]
    return results.state_of(state.load, state.constraints, windows, SETTINGS)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("load", [CLOSED, OPEN], ids=["closed", "open"])
def test_a_trial_that_is_read_again_says_the_same(load: Load, seed: int) -> None:
    state, end = measured(Target(exponential(0.01), 8, seed=seed), load)
    assert results.result(read_again(state)) == end.result


@pytest.mark.parametrize("seed", [1, 6, 16, 20])
def test_a_short_window_with_a_failure_is_no_whole_one_when_it_is_read_again(seed: int) -> None:
    """Of its some two hundred requests more than one in a hundred failed by chance, which a short window is forgiven."""
    target = Target(exponential(0.01), 2, failing=0.006, seed=seed)
    state, end = measured(target, CLOSED, (Constraint(metric="errorRate", at_most="1%"),))
    assert any(one.error_rate.value > 0.01 for one in state.windows)
    assert results.result(read_again(state)) == end.result


def test_loads_beside_the_one_found_are_measured() -> None:
    state, end = measured(Batching(), CLOSED)
    near = [one for one in state.windows if 0.5 <= one.level / end.result.level <= 2]
    assert len({one.level for one in near}) >= SETTINGS.near_windows


def test_a_course_has_each_load_that_was_measured_and_the_one_found() -> None:
    state, end = measured(Batching(), CLOSED)
    course = results.curve(read_again(state))
    levels = {one.level for one in state.windows} | {end.result.level}
    assert [one.level for one in course] == sorted(levels)
    assert end.result in course
    done = [one.throughput.value for one in course]
    assert done == sorted(done)


def test_where_the_target_failed_the_course_is_what_its_windows_saw() -> None:
    state, _ = measured(Target(exponential(0.01), 8), OPEN)
    failed = [one for one in state.windows if one.meets == "No"]
    course = results.curve(read_again(state))
    assert failed
    assert [one for one in course if one.level >= min(one.level for one in failed)] == sorted(
        failed, key=lambda one: one.level
    )


def test_what_loads_need_grows_with_them_and_no_load_is_left_out() -> None:
    state, end = measured(Batching(), CLOSED)
    reached = results.load_points(read_again(state), every=False)
    levels, needs = [one.window.level for one in reached], [one.needs[0] for one in reached]
    assert (levels[0], levels[-1] >= end.result.level) == (1, True)
    assert all(after <= max(before + 1, 1.25 * before) for before, after in pairwise(levels))
    assert all(math.log(after / before) > -0.05 for before, after in pairwise(needs))
    assert {at.percentile for at in reached[0].window.latencies} == {99}


def test_windows_without_an_answer_need_what_nobody_allows() -> None:
    state, end = measured(Target(lambda _: 1e6), CLOSED)
    again = read_again(state)
    assert results.result(again) == end.result
    assert [one.needs for one in results.load_points(again, every=False)] == [(math.inf,)]
    assert results.curve(again) == list(state.windows[-1:])
