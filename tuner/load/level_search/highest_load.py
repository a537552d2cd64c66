"""The search for the highest load that meets the constraints, in few windows: pure, one step at a time.

If the load has `levels`, they are measured in turn. Otherwise levels grow (users from 1, by at most a factor
of eight; rates from the duration of one request) until latencies reach their limit, or two levels in turn
give no more throughput, or the target fails, or the highest allowed level is reached. These windows are
short, and longer only if they do not decide. The curves through all windows (`load_model`) give the highest
load that another window would meet the limits at; of users, the fewest with that throughput. Unless the spec
is already beaten, some loads near that one get a short window, and it gets a whole one. If the curves then
move the load, the new load gets a window as well.

The claims of an end:

- Measured: another window at the result's load meets the latency constraints with a probability of 99 %, by
  the curves and the scatter of windows around them; `Window.meets` says whether they are surely met on
  average. If the least load does not surely meet them, the result is the least load's.
- BreaksConstraint: at the least load (one user, or the first rate) the 95 % interval lies beyond a limit.
- CannotBeatBest: no load that meets the constraints gives `stop_below` requests per second. This follows from
  the windows' 95 % intervals and the assumption that concurrent requests do not speed each other up, so that
  n users give at most n/m times the throughput of m users; an open loop gives at most its rate. Or the growth
  has ended, and the interval of the expected throughput lies below.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tuner.load.level_search import results
from tuner.load.level_search.load_model import LoadModel
from tuner.load.level_search.messages import ended
from tuner.load.level_search.state import Finished, Measure, State
from tuner.load.level_search.verdicts import Verdict, ceiling, highest_working, lowest_failing, verdicts
from tuner.settings import LoadSettings

_FEW = 5
"""Answers below which a short window is extended in any case."""
_NEAR = 2.0
"""Ratio of two loads up to which a window of one informs about the other."""
_BESIDE = {"closed": (1.4, 0.7, 1.8, 0.55), "open": (0.8, 1.2, 0.65)}
"""Factors of the found load for the windows near it: for users up to their expected limit, for rates less,
as their queue grows abruptly. All stay near when the found load moves a little."""
_FLAT = 2
"""Levels in turn without more throughput that end the growth: a single one may be noise of a shared
machine."""


def begin(
    load: Load,
    constraints: Sequence[Constraint],
    settings: LoadSettings,
    stop_below_throughput: str | float | None = None,
) -> State:
    """Return the state before the first window."""
    return State(load, settings, tuple(constraints), float(stop_below_throughput or 0))


def after(state: State, window: Window, *, extends: bool) -> State:
    """Return the state with the window of the last step; a window that extends the last one replaces it."""
    step = next_step(state)
    planned = step.seconds if isinstance(step, Measure) else 0.0
    if not extends:
        return replace(state, windows=(*state.windows, window), planned=(*state.planned, planned))
    return replace(
        state,
        windows=(*state.windows[:-1], window),
        planned=(*state.planned[:-1], state.planned[-1] + planned),
    )


def next_step(state: State) -> Measure | Finished:
    """Return the next measurement, or the end."""
    if state.load.levels:
        return _listed(state)
    if not state.windows:
        return _fresh(
            state, 1.0 if state.load.mode == "closed" else min(state.settings.first_rate, state.cap)
        )
    found = verdicts(state)
    return _stopped(state, found) or _longer(state, found) or _searched(state, found)


def _stopped(state: State, found: Sequence[Verdict]) -> Finished | None:
    """Return the end if no further window can matter."""
    enough = found[0].window.requests >= _FEW or found[0].whole
    if found[0].window.meets == "No" and enough:
        return ended(state, found[0].window, "BreaksConstraint")
    if state.stop_below and ceiling(state, found, state.cap) < state.stop_below:
        return ended(state, results.result(state), "CannotBeatBest")
    return None


def _searched(state: State, found: Sequence[Verdict]) -> Measure | Finished:
    model = results.model_of(state, found)
    if model is None:
        return _alone(state, found[0])
    level = _grown(state, found, model)
    if level is not None and len(state.windows) < state.settings.most_levels:
        return _fresh(state, level)
    expected = results.expected(state, found, model)
    if expected.throughput.high < state.stop_below:
        return ended(state, expected, "CannotBeatBest")
    level = expected.level
    return (
        _beside(state, found, model, level)
        or _whole(state, found, level)
        or ended(state, expected, "Measured")
    )


def _listed(state: State) -> Measure | Finished:
    levels = [state.drivable(float(level)) for level in state.load.levels]
    count = len(state.windows)
    if count < len(levels):
        warmup = float(state.load.warmup_seconds) * (1 if count == 0 else state.settings.settle_share)
        return Measure(levels[count], warmup, float(state.load.window_seconds), extends=False)
    found = verdicts(state)
    if found[0].window.meets == "No":
        return ended(state, found[0].window, "BreaksConstraint")
    return ended(state, results.result(state), "Measured")


def _alone(state: State, first: Verdict) -> Measure | Finished:
    """Give the least load a whole window, as no load is known to work."""
    remaining = state.load.window_seconds - state.planned[first.index]
    if remaining <= 0:
        return ended(state, first.window, "Measured")
    return (
        _extended(state, remaining)
        if first.index == len(state.windows) - 1
        else _fresh(state, first.level, whole=True)
    )


def _fresh(state: State, level: float, *, whole: bool = False) -> Measure:
    load, settings = state.load, state.settings
    warmup = load.warmup_seconds * (settings.settle_share if state.windows else 1.0)
    return Measure(
        level, warmup, load.window_seconds * (1.0 if whole else settings.probe_share), extends=False
    )


def _longer(state: State, found: Sequence[Verdict]) -> Measure | None:
    """Extend a short window if it may break a constraint, or has hardly any answers."""
    last = next(verdict for verdict in found if verdict.index == len(state.windows) - 1)
    planned, whole = state.planned[-1], float(state.load.window_seconds)
    unsure = last.window.meets == "Unsure" and last.ratio > 1 and last.kept_up
    if last.window.requests < _FEW:
        wanted = min(whole, 2 * planned)
    elif unsure:
        wanted = min(whole, 2 * state.settings.probe_share * whole)
    else:
        return None
    return _extended(state, wanted - planned) if wanted > planned else None


def _extended(state: State, seconds: float) -> Measure:
    return Measure(state.windows[-1].level, 0.0, seconds, extends=True)


def _grown(state: State, found: Sequence[Verdict], model: LoadModel) -> float | None:
    """Return the next higher level; None if it would break the limits, not give more, or not be allowed."""
    cap, top, failing = state.cap, highest_working(found), lowest_failing(found)
    if failing is not None:
        return _between(state, model, top.level, failing.level)
    if top.level >= cap:
        return None
    if state.load.mode == "closed" and len(found) > 1 and _gives_no_more(state, found, model):
        return None
    return min(cap, _more(state, found, model, top))


def _gives_no_more(state: State, found: Sequence[Verdict], model: LoadModel) -> bool:
    """Whether more users would break the limits or give no more.

    In an open loop only the next rate can tell.
    """
    settings = state.settings
    top = highest_working(found).level
    more = max(top + 1, float(math.floor(settings.resolution * top)))
    if model.limited and model.highest(more, 0.0) < more:
        return True
    rates = [verdict.rate for verdict in found]
    return len(found) > _FLAT and max(rates[-_FLAT:]) <= settings.knee * max(rates[:-_FLAT])


def _more(state: State, found: Sequence[Verdict], model: LoadModel, top: Verdict) -> float:
    """Return a higher load: for users, as many as are expected to meet the limits."""
    twice = state.settings.growth * top.level
    if state.load.mode == "closed":
        if not model.limited:
            return twice
        most = model.highest(min(state.cap, state.settings.leap * top.level), 0.0)
        return max(most, twice) if len(found) == 1 else max(most, top.level + 1)
    if len(found) == 1:
        alone = next((at.value for at in top.window.latencies if at.percentile == 50), 0.0)
        return max(twice, 0.5 / alone if alone > 0 else 0.0)
    return twice


def _between(state: State, model: LoadModel, works: float, fails: float) -> float | None:
    """Return a level between a working and a failing one.

    None if it would break the limits, or they are close.
    """
    closed = state.load.mode == "closed"
    if fails / works <= state.settings.resolution or (closed and fails - works <= 1):
        return None
    most = model.highest(fails - 1 if closed else fails, state.settings.safety)
    if most <= works:
        return None
    least = max(most, state.settings.resolution * works)
    if closed:
        return min(float(round(math.sqrt(works * fails))), max(works + 1, float(math.floor(least))))
    return min((works + fails) / 2, least)


def _beside(state: State, found: Sequence[Verdict], model: LoadModel, level: float) -> Measure | None:
    """Return a load near the found one without a window.

    None if enough windows show how latency grows there.
    """
    settings, end = state.settings, lowest_failing(found)
    near = [one for one in state.windows if max(one.level, level) <= _NEAR * min(one.level, level)]
    if not model.limited or len(near) >= settings.near_windows or len(state.windows) >= settings.most_levels:
        return None
    above = state.cap if end is None else end.level
    for share in _BESIDE[state.load.mode]:
        other = state.drivable(level * share)
        new = not any(_are_the_same(state, one.level, other) for one in state.windows)
        if new and found[0].level <= other <= above and (end is None or other < above):
            return _fresh(state, other)
    return None


def _whole(state: State, found: Sequence[Verdict], level: float) -> Measure | None:
    """Give the found load a whole window, longer if unsteady.

    None if an equal load had one, or enough had.
    """
    near = [one for one in found if one.works and _are_the_same(state, one.level, level)]
    last = next((one for one in near if one.index == len(state.windows) - 1), None)
    wanted = float(state.load.window_seconds)
    if any(one.whole for one in near):
        if last is None or last.window.steady:
            return None
        wanted *= state.settings.most_windows
    elif sum(one.whole for one in found) >= state.settings.whole_windows:
        return None
    if last is None:
        return _fresh(state, level, whole=True)
    return _extended(state, wanted - state.planned[-1]) if wanted > state.planned[-1] else None


def _are_the_same(state: State, one: float, other: float) -> bool:
    least = 1.0 if state.load.mode == "closed" else 0.0
    return abs(one - other) <= max(least, (state.settings.resolution - 1) * min(one, other))
