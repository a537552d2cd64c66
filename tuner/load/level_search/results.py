"""The result of the windows so far: the values of the highest load that meets the constraints.

Pure. It plans no window, and applies to ended trials as well as to running ones.
"""

import math
from collections.abc import Sequence

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tuner.constraints import measured_value
from tuner.load.level_search import load_model
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.state import LoadPoint, State
from tuner.load.level_search.verdicts import Verdict, highest_working, lowest_failing, verdicts
from tuner.settings import LoadSettings

_FINE = 1.1
"""Ratio between neighbouring loads of a curve: finer than a trial can resolve."""


def state_of(
    load: Load, constraints: Sequence[Constraint], windows: Sequence[Window], settings: LoadSettings
) -> State:
    """Return the state after the windows of an ended trial.

    Planned lengths are not recorded: of a whole window more than half was kept, of a short one at most half.
    """
    half = load.window_seconds / 2
    planned = tuple(load.window_seconds if window.seconds > half else window.seconds for window in windows)
    return State(load, settings, tuple(constraints), 0.0, tuple(windows), planned)


def result(state: State) -> Window:
    """Return the values of the resulting load from all windows.

    The least load's window if none has an answer.
    """
    found = verdicts(state)
    model = model_of(state, found)
    return found[0].window if model is None else expected(state, found, model)


def curve(state: State) -> list[Window]:
    """Return the values of each measured load and of the resulting one, ascending, from all windows.

    A load that failed, or without an answer, has the values of its own window.
    """
    found = verdicts(state)
    model = model_of(state, found)
    if model is None:
        return [one.window for one in found]
    levels = {window.level for window in model.windows} | {expected(state, found, model).level}
    return [model.at(level) for level in sorted(levels)] + [
        one.window for one in found if one.level > max(levels)
    ]


def load_points(state: State, *, every: bool) -> list[LoadPoint]:
    """Return loads from the lowest to the highest measured one, with their values and needed bounds.

    A failing load has the values of its own window. `every` includes latencies without a constraint, each of
    which costs a curve.
    """
    found = verdicts(state)
    model = model_of(state, found)
    if model is None:
        return [_point(state, one.window) for one in found]
    levels = model.loads(_FINE)
    failed = [one.window for one in found if one.level > max(window.level for window in model.windows)]
    return [LoadPoint(model.at(level, every=every), model.needs(level)) for level in levels] + [
        _point(state, one) for one in failed
    ]


def _point(state: State, window: Window) -> LoadPoint:
    each = [measured_value(window, one.metric, one.percentile) for one in state.constraints]
    return LoadPoint(window, tuple(math.inf if one is None else one.value for one in each))


def model_of(state: State, found: Sequence[Verdict]) -> LoadModel | None:
    """Return the load model of the windows below the lowest failing load; None if none has an answer."""
    end = lowest_failing(found)
    before = [one for one in state.windows if end is None or one.level < end.level]
    return load_model.fit(
        state, before, [one for one in state.windows if end is not None and one.level >= end.level]
    )


def expected(state: State, found: Sequence[Verdict], model: LoadModel) -> Window:
    """Return the values of the highest load within the limits, or of the fewest users as good."""
    level = model.highest(highest_working(found).level, state.settings.safety)
    if state.load.mode == "closed":
        level = model.fewest(level, state.settings.enough)
    return model.at(level)
