"""The result of the windows so far: the values of the highest load that meets the constraints. Pure.

All functions but `state_of` apply to ended trials as well as to running ones.
"""

import math
from collections.abc import Sequence

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Window
from tuner.constraints import measured_value
from tuner.load.level_search import load_model
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.state import LoadPoint, State
from tuner.load.level_search.verdicts import LevelVerdict, highest_working, level_verdicts, lowest_failing
from tuner.settings import LoadSettings

_ENOUGH = 0.98
"""Share of the highest throughput at which fewer users are the result: a short window cannot tell them
apart."""
_FINE = 1.1
"""Ratio between neighbouring loads of `load_points`, finer than a trial resolves."""


def state_of(
    load: ExperimentLoad, constraints: Sequence[Constraint], windows: Sequence[Window], settings: LoadSettings
) -> State:
    """Return the state after the windows of an ended trial.

    Planned lengths are not recorded. A window longer than half of `windowSeconds` counts as planned in full,
    as up to half of a window is dropped; others count as planned for their own length.
    """
    half = load.window_seconds / 2
    planned = tuple(load.window_seconds if window.seconds > half else window.seconds for window in windows)
    return State(load, settings, tuple(constraints), 0.0, tuple(windows), planned)


def result(state: State) -> Window:
    """Return the resulting load's values from all windows; the least load's window without a model."""
    verdicts = level_verdicts(state)
    model = model_of(state, verdicts)
    return verdicts[0].window if model is None else expected(state, verdicts, model)


def curve(state: State) -> list[Window]:
    """Return the values of each measured load and of the resulting one, ascending, from all windows.

    Each failing load, and every load without a model, has the values of its own window.
    """
    verdicts = level_verdicts(state)
    model = model_of(state, verdicts)
    if model is None:
        return [verdict.window for verdict in verdicts]
    levels = {window.level for window in model.windows} | {expected(state, verdicts, model).level}
    return [model.at(level) for level in sorted(levels)] + [
        verdict.window for verdict in verdicts if verdict.level > max(levels)
    ]


def load_points(state: State, *, every: bool) -> list[LoadPoint]:
    """Return loads, ascending, with their values and the bounds that they need.

    They cover the range from the lowest to the highest working load, then each failing one, which has the
    values of its own window. `every` includes latencies without a constraint, each of which costs a curve.
    """
    verdicts = level_verdicts(state)
    model = model_of(state, verdicts)
    if model is None:
        return [_point(state, verdict.window) for verdict in verdicts]
    levels = model.loads(_FINE)
    highest = max(window.level for window in model.windows)
    failed = [verdict.window for verdict in verdicts if verdict.level > highest]
    return [LoadPoint(model.at(level, every=every), model.needs(level)) for level in levels] + [
        _point(state, window) for window in failed
    ]


def _point(state: State, window: Window) -> LoadPoint:
    values = [
        measured_value(window, constraint.metric, constraint.percentile) for constraint in state.constraints
    ]
    return LoadPoint(window, tuple(math.inf if value is None else value.value for value in values))


def model_of(state: State, verdicts: Sequence[LevelVerdict]) -> LoadModel | None:
    """Return the load model of the windows below the lowest failing load; None if none has an answer.

    A window in which answers fell behind is left out: its load had not settled, and was measured again.
    """
    end = lowest_failing(verdicts)
    before = [
        window
        for window in state.windows
        if (end is None or window.level < end.level) and window.kept_up is not False
    ]
    beyond = [window for window in state.windows if end is not None and window.level >= end.level]
    return load_model.fit(state, before, beyond)


def expected(state: State, verdicts: Sequence[LevelVerdict], model: LoadModel) -> Window:
    """Return the values of the highest load within the limits.

    Of users, the values are of the fewest that give the share `_ENOUGH` of this load's throughput.
    """
    level = model.highest(highest_working(verdicts).level, load_model.SAFETY)
    if state.load.mode == "closed":
        level = model.fewest(level, _ENOUGH)
    return model.at(level)
