"""The result of a trial, computed again from the windows in its status."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Window
from tests.reference.queueing import BatchingTarget, QueueingTarget, exponential
from tuner.load.level_search import highest_load, results
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import LoadSettings

SETTINGS = LoadSettings()
LIMIT = Constraint(metric="latency", percentile=99, at_most="60ms")
CLOSED, OPEN = (
    ExperimentLoad(window_seconds=4, warmup_seconds=1),
    ExperimentLoad(mode="open", window_seconds=4, warmup_seconds=1),
)


def measured(
    target: QueueingTarget | BatchingTarget, load: ExperimentLoad, limits: Sequence[Constraint] = (LIMIT,)
) -> tuple[State, Finished]:
    """Run the search as a trial does."""
    state, parts = highest_load.begin(load, limits, SETTINGS), list[Samples]()
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        samples = target.window(load.mode, step.level, step.seconds)
        parts = [*parts, samples] if step.extends else [samples]
        state = highest_load.after(state, window_summary.summary(joined(parts), limits), extends=step.extends)
    return state, step


def read_again(state: State) -> State:
    """Return the state as a Trial's status has it."""
    windows = [Window.model_validate(window.model_dump(by_alias=True)) for window in state.windows]
    return results.state_of(state.load, state.constraints, windows, SETTINGS)


def level_of(window: Window) -> float:
    return window.level


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("load", [CLOSED, OPEN], ids=["closed", "open"])
def test_result_is_the_same_when_read_from_the_status(load: ExperimentLoad, seed: int) -> None:
    state, end = measured(QueueingTarget(exponential(0.01), 8, seed=seed), load)
    assert results.result(read_again(state)) == end.result


@pytest.mark.parametrize("seed", [1, 6, 16, 20])
def test_short_window_stays_short_when_read_from_the_status(seed: int) -> None:
    """By chance more than 1 % of some two hundred requests failed, which a short window tolerates."""
    target = QueueingTarget(exponential(0.01), 2, failing=0.006, seed=seed)
    state, end = measured(target, CLOSED, (Constraint(metric="errorRate", at_most="1%"),))
    assert any(window.error_rate.value > 0.01 for window in state.windows)
    assert results.result(read_again(state)) == end.result


def test_loads_near_the_result_are_measured() -> None:
    state, end = measured(BatchingTarget(), CLOSED)
    near = {window.level for window in state.windows if 0.5 <= window.level / end.result.level <= 2}
    assert len(near) >= highest_load.NEAR_WINDOWS


def test_curve_has_each_measured_load_and_the_result() -> None:
    state, end = measured(BatchingTarget(), CLOSED)
    curve = results.curve(read_again(state))
    levels = {window.level for window in state.windows} | {end.result.level}
    assert [window.level for window in curve] == sorted(levels)
    assert end.result in curve
    throughputs = [window.throughput.value for window in curve]
    assert throughputs == sorted(throughputs)


def test_curve_has_the_windows_own_values_where_the_target_failed() -> None:
    state, _ = measured(QueueingTarget(exponential(0.01), 8), OPEN)
    failed = sorted((window for window in state.windows if window.meets == "No"), key=level_of)
    assert failed
    curve = results.curve(read_again(state))
    assert [window for window in curve if window.level >= failed[0].level] == failed


def test_needed_bounds_grow_with_the_load() -> None:
    state, end = measured(BatchingTarget(), CLOSED)
    points = results.load_points(read_again(state), every=False)
    levels, needs = [point.window.level for point in points], [point.needs[0] for point in points]
    assert (levels[0], levels[-1] >= end.result.level) == (1, True)
    assert all(after <= max(before + 1, 1.25 * before) for before, after in pairwise(levels))
    assert all(math.log(after / before) > -0.05 for before, after in pairwise(needs))
    assert {at.percentile for at in points[0].window.latencies} == {99}


def test_needed_bound_is_infinite_when_no_window_has_an_answer() -> None:
    state, end = measured(QueueingTarget(lambda _: 1e6), CLOSED)
    again = read_again(state)
    assert results.result(again) == end.result
    assert [point.needs for point in results.load_points(again, every=False)] == [(math.inf,)]
    assert results.curve(again) == list(state.windows[-1:])
