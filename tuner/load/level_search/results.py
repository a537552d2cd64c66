"""What is found so far: the windows' curves up to where the target fails, and what they say of the load that meets the constraints. Pure.

It decides nothing about what is measured next, and is as true of a trial that is over as of one that runs.
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
"""From one load to the next where a whole range of them is told: less than a trial knows of any."""


def again(
    load: Load, constraints: Sequence[Constraint], windows: Sequence[Window], settings: LoadSettings
) -> State:
    """Return the state after the windows of a trial that is over.

    How long a window was to last is not written down. Of a whole one more than half was kept, of a short one that was made longer at most half.
    """
    half = load.window_seconds / 2
    asked = tuple(load.window_seconds if one.seconds > half else one.seconds for one in windows)
    return State(load, settings, tuple(constraints), 0.0, tuple(windows), asked)


def result(state: State) -> Window:
    """Return what all windows together say of the load that is found by now; the least load's window where none has an answer."""
    found = verdicts(state)
    read = reading_of(state, found)
    return found[0].window if read is None else expected(state, found, read)


def course(state: State) -> list[Window]:
    """Return what all windows say of each load that was measured, and of the one that is found, ascending.

    Where the target failed, or nothing was answered, what the load's own window says.
    """
    found = verdicts(state)
    read = reading_of(state, found)
    if read is None:
        return [one.window for one in found]
    levels = {window.level for window in read.windows} | {expected(state, found, read).level}
    return [read.at(level) for level in sorted(levels)] + [
        one.window for one in found if one.level > max(levels)
    ]


def reached(state: State, *, every: bool) -> list[LoadPoint]:
    """Return what all windows say of loads from the lowest to the highest that was measured, and what these loads need.

    Windows at which the target failed say it themselves. `every` latency is told, or only those that have a limit: of the others each costs a curve.
    """
    found = verdicts(state)
    read = reading_of(state, found)
    if read is None:
        return [_seen(state, one.window) for one in found]
    levels = read.loads(_FINE)
    failed = [one.window for one in found if one.level > max(window.level for window in read.windows)]
    return [LoadPoint(read.at(level, every=every), read.needs(level)) for level in levels] + [
        _seen(state, one) for one in failed
    ]


def _seen(state: State, window: Window) -> LoadPoint:
    each = [measured_value(window, one.metric, one.percentile) for one in state.constraints]
    return LoadPoint(window, tuple(math.inf if one is None else one.value for one in each))


def reading_of(state: State, found: Sequence[Verdict]) -> LoadModel | None:
    """Return what the windows say below the load at which the target fails; None where none of them has an answer."""
    end = lowest_failing(found)
    before = [one for one in state.windows if end is None or one.level < end.level]
    return load_model.of(
        state, before, [one for one in state.windows if end is not None and one.level >= end.level]
    )


def expected(state: State, found: Sequence[Verdict], read: LoadModel) -> Window:
    """Return what is expected of the highest load that meets the limits with their margin, or of the fewest users who give as much."""
    level = read.highest(highest_working(found).level, state.settings.safety)
    if state.load.mode == "closed":
        level = read.fewest(level, state.settings.enough)
    return read.at(level)
