"""The search for the highest load that meets the constraints, in few windows: pure, one step at a time.

Where the load has `levels`, they are measured in turn. Otherwise levels grow (users 1, then at most eight times as many; rates from what one
request takes) until latencies are at their limit, or two in turn give no more throughput, or the target fails, or the highest allowed is
reached. These windows are short, longer where they do not decide: what counts is the curve through all of them (`reading`). It says which
load another window would meet the limits at, too; of users, the fewest who give as much. Where a spec is not out of the race by then, some loads
beside that one get a short window, and it gets a whole one; all are on the curve then, and where the load has moved by that, another one does.

What an end claims:

- Measured: another window of the result's load meets the latency constraints with a probability of 99 %, as far as the curves and the scatter
  of windows around them say; `Window.meets` says how sure it is that they are met on average. Where the least load met nothing surely, the
  result is that of the least load.
- BreaksConstraint: at the least load, one user or the first rate, the 95 % interval lies beyond a limit.
- CannotBeatBest: no load that meets the constraints gives `stop_below` requests per second. That follows from windows' 95 %
  intervals and from one assumption, that a request is not answered sooner when others are asked at the same time: n users then
  give at most n/m times what m users give. An open loop gives no more than it is asked. Or the growth is over, and the interval of what
  the curves say lies below.
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
"""Answers below which a short window is made longer, whatever it says."""
_NEAR = 2.0
"""Ratio of two loads up to which a window of one says much of the other."""
_BESIDE = {"closed": (1.4, 0.7, 1.8, 0.55), "open": (0.8, 1.2, 0.65)}
"""Times the load found, that is measured beside it: of users up to where their limit is expected, of rates less, as a queue grows all at once. All
are so near that they still are when the load found has moved a little."""
_DULL = 2
"""Levels in turn that give no more throughput and so end the growth: one may have had bad luck on a shared machine."""


def begin(
    load: Load,
    constraints: Sequence[Constraint],
    settings: LoadSettings,
    stop_below_throughput: str | float | None = None,
) -> State:
    """Return the state before the first window."""
    return State(load, settings, tuple(constraints), float(stop_below_throughput or 0))


def after(state: State, window: Window, *, extends: bool) -> State:
    """Return the state with one more window, of the step that was next; one that extends the last takes its place."""
    step = next_step(state)
    asked = step.seconds if isinstance(step, Measure) else 0.0
    if not extends:
        return replace(state, windows=(*state.windows, window), asked=(*state.asked, asked))
    return replace(
        state, windows=(*state.windows[:-1], window), asked=(*state.asked[:-1], state.asked[-1] + asked)
    )


def next_step(state: State) -> Measure | Finished:
    """Return what to measure next, or what was found."""
    if state.load.levels:
        return _listed(state)
    if not state.windows:
        return _fresh(
            state, 1.0 if state.load.mode == "closed" else min(state.settings.first_rate, state.cap)
        )
    found = verdicts(state)
    return _stopped(state, found) or _longer(state, found) or _searched(state, found)


def _stopped(state: State, found: Sequence[Verdict]) -> Finished | None:
    """End the search where nothing that could still be measured matters."""
    enough = found[0].window.requests >= _FEW or found[0].whole
    if found[0].window.meets == "No" and enough:
        return ended(state, found[0].window, "BreaksConstraint")
    if state.stop_below and ceiling(state, found, state.cap) < state.stop_below:
        return ended(state, results.result(state), "CannotBeatBest")
    return None


def _searched(state: State, found: Sequence[Verdict]) -> Measure | Finished:
    read = results.reading_of(state, found)
    if read is None:
        return _alone(state, found[0])
    level = _grown(state, found, read)
    if level is not None and len(state.windows) < state.settings.most_levels:
        return _fresh(state, level)
    expected = results.expected(state, found, read)
    if expected.throughput.high < state.stop_below:
        return ended(state, expected, "CannotBeatBest")
    level = expected.level
    return (
        _beside(state, found, read, level)
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
    """Give the least load a whole window, as there is none at which the target is known to work."""
    left = state.load.window_seconds - state.asked[first.index]
    if left <= 0:
        return ended(state, first.window, "Measured")
    return (
        _extended(state, left)
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
    """Make a short window twice as long where it seems to break a constraint without being sure, and longer if it saw hardly anything."""
    last = next(verdict for verdict in found if verdict.index == len(state.windows) - 1)
    asked, whole = state.asked[-1], float(state.load.window_seconds)
    unsure = last.window.meets == "Unsure" and last.ratio > 1 and last.kept_up
    if last.window.requests < _FEW:
        wanted = min(whole, 2 * asked)
    elif unsure:
        wanted = min(whole, 2 * state.settings.probe_share * whole)
    else:
        return None
    return _extended(state, wanted - asked) if wanted > asked else None


def _extended(state: State, seconds: float) -> Measure:
    return Measure(state.windows[-1].level, 0.0, seconds, extends=True)


def _grown(state: State, found: Sequence[Verdict], read: LoadModel) -> float | None:
    """Return the next higher level; None where the limits are met by no more, or more would give no more, or is not allowed."""
    cap, top, failing = state.cap, highest_working(found), lowest_failing(found)
    if failing is not None:
        return _between(state, read, top.level, failing.level)
    if top.level >= cap:
        return None
    if state.load.mode == "closed" and len(found) > 1 and _gives_no_more(state, found, read):
        return None
    return min(cap, _more(state, found, read, top))


def _gives_no_more(state: State, found: Sequence[Verdict], read: LoadModel) -> bool:
    """Whether more users would not meet the limits, or not give more. Of an open loop the next rate says so, and its queue nothing before."""
    settings = state.settings
    top = highest_working(found).level
    more = max(top + 1, float(math.floor(settings.resolution * top)))
    if read.limited and read.highest(more, 0.0) < more:
        return True
    rates = [verdict.rate for verdict in found]
    return len(found) > _DULL and max(rates[-_DULL:]) <= settings.knee * max(rates[:-_DULL])


def _more(state: State, found: Sequence[Verdict], read: LoadModel, top: Verdict) -> float:
    """Return a higher load: of users, as many as are expected to meet the limits, where there are any."""
    twice = state.settings.growth * top.level
    if state.load.mode == "closed":
        if not read.limited:
            return twice
        most = read.highest(min(state.cap, state.settings.leap * top.level), 0.0)
        return max(most, twice) if len(found) == 1 else max(most, top.level + 1)
    if len(found) == 1:
        alone = next((at.value for at in top.window.latencies if at.percentile == 50), 0.0)
        return max(twice, 0.5 / alone if alone > 0 else 0.0)
    return twice


def _between(state: State, read: LoadModel, works: float, fails: float) -> float | None:
    """Return a level between those at which the target works and fails; None where the limits are met by none, or there is hardly one."""
    closed = state.load.mode == "closed"
    if fails / works <= state.settings.resolution or (closed and fails - works <= 1):
        return None
    most = read.highest(fails - 1 if closed else fails, state.settings.safety)
    if most <= works:
        return None
    least = max(most, state.settings.resolution * works)
    if closed:
        return min(float(round(math.sqrt(works * fails))), max(works + 1, float(math.floor(least))))
    return min((works + fails) / 2, least)


def _beside(state: State, found: Sequence[Verdict], read: LoadModel, level: float) -> Measure | None:
    """Return a load beside the one found that has no window yet; None where enough are near: they say how latency grows there."""
    settings, end = state.settings, lowest_failing(found)
    near = [one for one in state.windows if max(one.level, level) <= _NEAR * min(one.level, level)]
    if not read.limited or len(near) >= settings.near_windows or len(state.windows) >= settings.most_levels:
        return None
    above = state.cap if end is None else end.level
    for share in _BESIDE[state.load.mode]:
        other = state.drivable(level * share)
        new = not any(_are_the_same(state, one.level, other) for one in state.windows)
        if new and found[0].level <= other <= above and (end is None or other < above):
            return _fresh(state, other)
    return None


def _whole(state: State, found: Sequence[Verdict], level: float) -> Measure | None:
    """Give the load found a whole window, longer where it is not steady; None where one that is as good as the same had it, or enough had."""
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
    return _extended(state, wanted - state.asked[-1]) if wanted > state.asked[-1] else None


def _are_the_same(state: State, one: float, other: float) -> bool:
    least = 1.0 if state.load.mode == "closed" else 0.0
    return abs(one - other) <= max(least, (state.settings.resolution - 1) * min(one, other))
