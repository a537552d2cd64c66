"""The search for the highest load that meets the constraints, one window at a time. Pure.

If the load has `levels`, they are measured in turn. Otherwise levels grow (users from 1, by at most a factor
of eight; rates from `first_rate`, which shows the duration of one request) until latencies reach their limit,
two levels in turn give users no more throughput, the target fails, or the highest allowed level is reached.
These windows are short, and are extended only if they do not decide. The curves through all windows
(`load_model`) give the highest load at which another window would meet the limits; of users, the fewest with
that throughput. If this throughput can still win, some loads near the result get a short window, and the
result gets a whole one. If the curves then move the result, the new load gets a window as well.

The claim of each reason:

- Measured: another window at the result's load meets the latency constraints with a probability of 99 %, by
  the curves and the scatter of windows around them; `Window.meets` is Yes if they are surely met on average.
  At a load up to the knee (`LoadModel.highest`) the curves meet them without allowance for scatter. If no
  load does, the result is the least load's.
- BreaksConstraint: at the least load (one user, the first rate, or the lowest of `levels`) the 95 % interval
  lies beyond a limit.
- CannotBeatBest: no load that meets the constraints gives `stop_below` requests per second. This follows from
  the windows' 95 % intervals and the assumption that concurrent requests do not speed each other up, so that
  n users give at most n/m times the throughput of m users; an open loop gives at most its rate. Or growth has
  ended, the interval of the expected throughput lies below, and no window both surely met the constraints and
  reached it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Window
from tuner.load.level_search import load_model, results
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.messages import ended
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.level_search.verdicts import (
    LevelVerdict,
    ceiling,
    highest_working,
    level_verdicts,
    lowest_failing,
)
from tuner.settings import LoadSettings

PROBE_SHARE = 0.25
"""Share of `windowSeconds` for a load while the search for the highest load runs; the result gets a whole
one."""
SETTLE_SHARE = 0.25
"""Share of `warmupSeconds` for each load after the first: the target is warm by then, only its queue
changes."""
RESOLUTION = 1.15
"""Ratio below which two loads count as equal: of the result to the nearest whole window, and of the lowest
load at which the target fails to the highest at which it does not."""
MOST_LEVELS = 16
"""Windows after which no other load is tried: 1 to 2,048 users by doubling, or growth, bisection and the
loads near the result together."""
NEAR_WINDOWS = 5
"""Windows at loads within a factor of two of the result, if there are so many loads: a short window takes one
or two of a trial's ten seconds, most of which are its start."""
_GROWTH = 2.0
"""Factor from one load to the next: 1 to 1,024 users by doubling take eleven windows."""
_LEAP = 8.0
"""Largest factor from one load to the next, when latencies are far below their limits."""
_KNEE = 1.05
"""Ratio of throughputs up to which more users give no more."""
_WHOLE_WINDOWS = 3
"""Most loads that get a whole window: each moves the result, and none need be the last to do so."""
_LONGEST_WINDOW = 1.5
"""Longest last window, in `windowSeconds`, when the window is not steady or does not decide."""
_SETTLING_LATENCY = ("latency", 99)
"""Metric and percentile of the latency after which nearly all answers are to requests of the new rate."""
_FEW_REQUESTS = 5
"""Ended requests, failed ones included, below which a short window is extended in any case."""
_NEAR = 2.0
"""Ratio of two loads up to which they are near each other."""
_NEIGHBOUR_FACTORS = {"closed": (1.4, 0.7, 1.8, 0.55), "open": (0.8, 1.2, 0.65)}
"""By mode, factors from the result's load to the loads of the windows near it, in the order of measurement.
Those of rates, whose queue grows abruptly, are closer to 1. All are within `_NEAR` even if the result moves a
little."""
_FLAT_LEVELS = 2
"""Levels in turn without more throughput that end the growth; a single one may be noise."""


def begin(
    load: ExperimentLoad,
    constraints: Sequence[Constraint],
    settings: LoadSettings,
    stop_below_throughput: str | float | None = None,
) -> State:
    """Return the state before the first window.

    `stop_below_throughput` is in requests per second; None or 0 never stops the search early.
    """
    return State(load, settings, tuple(constraints), float(stop_below_throughput or 0))


def most_seconds(load: ExperimentLoad, settings: LoadSettings) -> float:
    """Return an upper limit of the seconds of a search: its windows, and the waits before them."""
    # The first rate may be measured twice, and each window of the search extended or repeated.
    windows = len(load.levels) + 1 if load.levels else 2 * MOST_LEVELS
    waits = load.warmup_seconds + 2 * settings.request_timeout + settings.drain_timeout
    return windows * (waits + load.window_seconds)


def after(state: State, window: Window, *, extends: bool) -> State:
    """Return the state with the window of the last step; a window that extends the last one replaces it."""
    step = next_step(state)  # the last step again: the state is the one that it was made from
    planned = step.seconds if isinstance(step, MeasureLevel) else 0.0
    if not extends:
        return replace(state, windows=(*state.windows, window), planned=(*state.planned, planned))
    return replace(
        state,
        windows=(*state.windows[:-1], window),
        planned=(*state.planned[:-1], state.planned[-1] + planned),
    )


def next_step(state: State) -> MeasureLevel | Finished:
    """Return the next measurement, or the end."""
    if state.load.levels:
        return _listed_level(state)
    if not state.windows:
        is_closed = state.load.mode == "closed"
        return _new_window(state, 1.0 if is_closed else min(state.settings.first_rate, state.cap))
    verdicts = level_verdicts(state)
    return _early_end(state, verdicts) or _longer_window(state, verdicts) or _search_step(state, verdicts)


def _early_end(state: State, verdicts: Sequence[LevelVerdict]) -> Finished | None:
    """Return the end if no further window can change the outcome."""
    has_answers = verdicts[0].window.requests >= _FEW_REQUESTS or verdicts[0].full_length
    if verdicts[0].window.meets == "No" and has_answers and not _may_be_answered(state):
        return ended(state, verdicts[0].window, "BreaksConstraint")
    if _is_first_rate_unsettled(state):
        return None
    if state.stop_below and ceiling(state, verdicts, state.cap) < state.stop_below:
        return ended(state, results.result(state), "CannotBeatBest")
    return None


def _search_step(state: State, verdicts: Sequence[LevelVerdict]) -> MeasureLevel | Finished:
    """Return the next window of growth or bisection, later those near the result and its own, or the end."""
    if _is_first_rate_unsettled(state):
        return _new_window(state, state.windows[0].level, full_length=True)
    model = results.model_of(state, verdicts)
    if model is None:  # no load is known to work
        return _rest_of_window(state, verdicts[0]) or ended(state, verdicts[0].window, "Measured")
    level = _next_level(state, verdicts, model)
    if level is not None and len(state.windows) < MOST_LEVELS:
        return _new_window(state, level)
    expected = results.expected(state, verdicts, model)
    if expected.throughput.high < state.stop_below:
        rival = _measured_rival(state, verdicts)
        if rival is None:
            return ended(state, expected, "CannotBeatBest")
        return _rest_of_window(state, rival) or ended(state, expected, "Measured")
    level = expected.level
    return (
        _neighbour_window(state, verdicts, model, level)
        or _full_window(state, verdicts, level)
        or ended(state, expected, "Measured")
    )


def _is_first_rate_unsettled(state: State) -> bool:
    """Return whether the first rate's window began before an answer was due, so that its queue only grew.

    The answers of this window show how long a new window has to settle. `Window.kept_up` is None in a closed
    loop, and in windows that earlier releases stored.
    """
    return state.load.mode == "open" and len(state.windows) == 1 and state.windows[0].kept_up is False


def _may_be_answered(state: State) -> bool:
    """Return whether no request of the last window has ended, as the window is shorter than their timeout."""
    return state.windows[-1].requests == 0 and state.planned[-1] < state.settings.request_timeout


def _measured_rival(state: State, verdicts: Sequence[LevelVerdict]) -> LevelVerdict | None:
    """Return the fastest measured level that surely meets the constraints and reaches `stop_below`, or None.

    A curve through few windows may lie above the latency that one of them has measured.
    """
    rivals = [
        verdict
        for verdict in verdicts
        if verdict.works
        and verdict.window.meets == "Yes"
        and verdict.window.throughput.high >= state.stop_below
    ]
    return max(rivals, key=lambda verdict: verdict.rate, default=None)


def _listed_level(state: State) -> MeasureLevel | Finished:
    """Return a whole window of the next of `levels`, an extension of the last window, or the end."""
    levels = [state.drivable(float(level)) for level in state.load.levels]
    if state.windows and _may_be_answered(state):
        return _extension(state, state.settings.request_timeout - state.planned[-1])
    # The first rate gets a second window if its first one had not settled (`_is_first_rate_unsettled`).
    is_repeated = state.load.mode == "open" and bool(state.windows) and state.windows[0].kept_up is False
    count = len(state.windows) - is_repeated
    if count < len(levels):
        return MeasureLevel(
            levels[count], _warmup(state, levels[count]), float(state.load.window_seconds), extends=False
        )
    verdicts = level_verdicts(state)
    if verdicts[0].window.meets == "No":
        return ended(state, verdicts[0].window, "BreaksConstraint")
    return ended(state, results.result(state), "Measured")


def _rest_of_window(state: State, verdict: LevelVerdict) -> MeasureLevel | None:
    """Return the measurement that gives the level a window of full length; None if its window has that.

    Only the last window can be extended, so that an earlier level is measured anew.
    """
    remaining = state.load.window_seconds - state.planned[verdict.index]
    if remaining <= 0:
        return None
    return (
        _extension(state, remaining)
        if verdict.index == len(state.windows) - 1
        else _new_window(state, verdict.level, full_length=True)
    )


def _new_window(state: State, level: float, *, full_length: bool = False) -> MeasureLevel:
    share = 1.0 if full_length else PROBE_SHARE
    return MeasureLevel(level, _warmup(state, level), state.load.window_seconds * share, extends=False)


def _warmup(state: State, level: float) -> float:
    """Return the seconds before a window.

    At a new rate of an open loop, the first answers are to requests of the old rate, for about the p99 of the
    nearest measured rate that is not higher.
    """
    if not state.windows:
        return float(state.load.warmup_seconds)
    settled = state.load.warmup_seconds * SETTLE_SHARE
    lower = [window for window in state.windows if window.level <= level]
    if state.load.mode == "closed" or not lower:
        return settled
    nearest = max(reversed(lower), key=lambda window: window.level)  # of one level, the last window
    p99 = next((at.value for at in nearest.latencies if (at.metric, at.percentile) == _SETTLING_LATENCY), 0.0)
    return max(settled, min(p99, state.settings.request_timeout))


def _longer_window(state: State, verdicts: Sequence[LevelVerdict]) -> MeasureLevel | None:
    """Return an extension of the last window if it may break a constraint, or has too few ended requests.

    It at most doubles the window. None if the window has its greatest length already.
    """
    last = next(verdict for verdict in verdicts if verdict.index == len(state.windows) - 1)
    planned, full = state.planned[-1], float(state.load.window_seconds)
    short = PROBE_SHARE * full
    may_break = last.window.meets == "Unsure" and last.ratio > 1 and last.kept_up
    if _may_be_answered(state):
        seconds = min(max(full, state.settings.request_timeout), 2 * planned)
    elif last.window.requests < _FEW_REQUESTS:
        seconds = min(full, 2 * planned)
    elif may_break:
        seconds = min(full, 2 * short)
    else:
        return None
    return _extension(state, seconds - planned) if seconds > planned else None


def _extension(state: State, seconds: float) -> MeasureLevel:
    return MeasureLevel(state.windows[-1].level, 0.0, seconds, extends=True)


def _next_level(state: State, verdicts: Sequence[LevelVerdict], model: LoadModel) -> float | None:
    """Return the next level.

    None if it would break the limits, give no more throughput, or exceed the highest allowed level.
    """
    cap, top, failing = state.cap, highest_working(verdicts), lowest_failing(verdicts)
    if failing is not None:
        return _bisection(state, model, top.level, failing.level)
    if top.level >= cap:
        return None
    if state.load.mode == "closed" and len(verdicts) > 1 and _growth_is_over(verdicts, model):
        return None
    return min(cap, _higher_level(state, verdicts, model, top))


def _growth_is_over(verdicts: Sequence[LevelVerdict], model: LoadModel) -> bool:
    """Return whether more users would break the limits or give no more throughput."""
    top = highest_working(verdicts).level
    # The least number of users that a window can tell apart from the highest working one.
    more = max(top + 1, float(math.floor(RESOLUTION * top)))
    if model.limited and model.highest(more, deviations=0.0) < more:
        return True
    if len(verdicts) <= _FLAT_LEVELS:
        return False
    rates = [verdict.rate for verdict in verdicts]
    earlier, latest = rates[:-_FLAT_LEVELS], rates[-_FLAT_LEVELS:]
    return max(latest) <= _KNEE * max(earlier)


def _higher_level(
    state: State, verdicts: Sequence[LevelVerdict], model: LoadModel, top: LevelVerdict
) -> float:
    """Return a higher level; of users, as many as are expected to meet the limits."""
    grown = _GROWTH * top.level
    if state.load.mode == "closed":
        if not model.limited:
            return grown
        leap = min(state.cap, _LEAP * top.level)
        expected = model.highest(leap, deviations=0.0)
        # A single level shows nothing of the growth of latency: the expected load may be too low.
        return max(expected, grown) if len(verdicts) == 1 else max(expected, top.level + 1)
    if len(verdicts) == 1:
        median = next((at.value for at in top.window.latencies if at.percentile == 50), 0.0)
        # A target that serves one request at a time is busy half of the time at 0.5 / median.
        return max(grown, 0.5 / median if median > 0 else 0.0)
    return grown


def _bisection(state: State, model: LoadModel, works: float, fails: float) -> float | None:
    """Return a level between a working and a failing one.

    None if the two are close, or if the model expects each level above the working one to break the limits.
    """
    closed = state.load.mode == "closed"
    if fails / works <= RESOLUTION or (closed and fails - works <= 1):
        return None
    expected = model.highest(fails - 1 if closed else fails, load_model.SAFETY)
    if expected <= works:
        return None
    # A smaller step than `RESOLUTION` would measure the same load again.
    highest = max(expected, RESOLUTION * works)
    if not closed:
        return min((works + fails) / 2, highest)
    geometric_mean = float(round(math.sqrt(works * fails)))
    return min(geometric_mean, max(works + 1, float(math.floor(highest))))


def _neighbour_window(
    state: State, verdicts: Sequence[LevelVerdict], model: LoadModel, level: float
) -> MeasureLevel | None:
    """Return a window of a new load near the result's; None if enough windows are near.

    None as well if no latency is limited, or after `MOST_LEVELS` windows.
    """
    failing = lowest_failing(verdicts)
    near = [
        window for window in state.windows if max(window.level, level) <= _NEAR * min(window.level, level)
    ]
    if not model.limited or len(near) >= NEAR_WINDOWS or len(state.windows) >= MOST_LEVELS:
        return None
    upper = state.cap if failing is None else failing.level
    for factor in _NEIGHBOUR_FACTORS[state.load.mode]:
        neighbour = state.drivable(level * factor)
        is_new = not any(_is_same_load(state, window.level, neighbour) for window in state.windows)
        is_below = neighbour <= upper if failing is None else neighbour < upper
        if is_new and verdicts[0].level <= neighbour and is_below:
            return _new_window(state, neighbour)
    return None


def _full_window(state: State, verdicts: Sequence[LevelVerdict], level: float) -> MeasureLevel | None:
    """Return a window of full length at the result's load, or a longer one if that window was unsteady.

    None if this load had its full window, or if `_WHOLE_WINDOWS` loads had one.
    """
    same = [verdict for verdict in verdicts if verdict.works and _is_same_load(state, verdict.level, level)]
    last = next((verdict for verdict in same if verdict.index == len(state.windows) - 1), None)
    seconds = float(state.load.window_seconds)
    if any(verdict.full_length for verdict in same):
        if last is None or last.window.steady:
            return None
        seconds *= _LONGEST_WINDOW
    elif sum(verdict.full_length for verdict in verdicts) >= _WHOLE_WINDOWS:
        return None
    if last is None:
        return _new_window(state, level, full_length=True)
    return _extension(state, seconds - state.planned[-1]) if seconds > state.planned[-1] else None


def _is_same_load(state: State, first: float, second: float) -> bool:
    """Return whether a window cannot tell two loads apart: within `RESOLUTION`, or one user."""
    smallest_step = 1.0 if state.load.mode == "closed" else 0.0
    tolerance = (RESOLUTION - 1) * min(first, second)
    return abs(first - second) <= max(smallest_step, tolerance)
