"""The search for the highest load that meets the constraints, in few windows: pure, one step at a time.

Where the load has `levels`, they are measured in turn. Otherwise levels grow (users 1, 2, 4, ...; rates from what one request takes)
until one breaks a constraint, or two in turn give no more throughput, or the highest allowed is reached; then, where more can be
had between the highest that meets and the lowest that breaks, they are brought together by bisection. Levels get a short window while this goes on,
longer where it does not decide; the level found gets a whole one, and where that breaks a constraint, the next lower one does. Of
users, the level found is the fewest who give as much as the most that meet. The highest load that meets is near a limit by its nature,
and the next measurement of it may be beyond: where the noise seen says so, a lower load gets a whole window, and is the result.

What an end claims:

- Measured: the result met the constraints in a whole window, `Window.meets` saying how sure that is. The next level that was tried
  did not, or not with a margin that its noise asks for, or gave no more throughput, or there was none (`message`). A result whose `meets` is not Yes where the least load met
  nothing surely is no more than the least load.
- BreaksConstraint: at the least load, one user or the first rate, the 95 % interval lies beyond a limit.
- CannotBeatBest: no load that meets the constraints gives `stop_below` requests per second. That follows from windows' 95 %
  intervals and from one assumption, that a request is not answered sooner when others are asked at the same time: n users then
  give at most n/m times what m users give. An open loop gives no more than it is asked. Or the search is over (see Measured), and
  the interval of the level found lies below by more than a step of the search could add.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tuner.load.steps import Finished, Measure, State
from tuner.load.verdicts import Verdict, ceiling, highest_met, lowest_broken, verdicts
from tuner.load.words import ended
from tuner.settings import LoadSettings

_FEW = 5
"""Answers below which a short window is made longer, whatever it says."""
_DULL = 2
"""Levels in turn that give no more throughput and so end the growth: one may have had bad luck on a shared machine."""
_CLEAR = 0.5
"""Of a limit, below which a whole window that is not sure is left at that."""
_NEAR, _FAR = 0.25, 0.75
"""Where between the two levels, on a logarithmic scale, the next one is put at least and at most."""
_AIM = 0.7
"""Of a limit, that a leap aims at: latency grows with the users at most as fast as they do."""


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
            state, 1.0 if state.load.mode == "closed" else min(state.settings.first_rate, _cap(state))
        )
    found = verdicts(state)
    return _stopped(state, found) or _longer(state, found) or _searched(state, found)


def _stopped(state: State, found: Sequence[Verdict]) -> Finished | None:
    """End the search where nothing that could still be measured matters."""
    enough = found[0].window.requests >= _FEW or found[0].whole
    if found[0].window.meets == "No" and enough:
        return ended(state, found[0], "BreaksConstraint")
    if state.stop_below and ceiling(state, found, _cap(state)) < state.stop_below:
        return ended(state, highest_met(found) or found[0], "CannotBeatBest")
    return None


def _searched(state: State, found: Sequence[Verdict]) -> Measure | Finished:
    best, broken = highest_met(found), lowest_broken(found)
    if best is None:
        return _whole(state, found, found[0])
    level = _grown(state, found, best) if broken is None else _between(state, best, broken)
    if level is not None and len(state.windows) < state.settings.most_levels:
        return _fresh(state, level, whole=broken is not None and broken.whole)
    chosen = _safest(found, _widest(state, found, best))
    if chosen.window.throughput.high * state.settings.knee < state.stop_below:
        return ended(state, chosen, "CannotBeatBest")
    return _whole(state, found, chosen)


def _listed(state: State) -> Measure | Finished:
    levels = [_level(state, float(level)) for level in state.load.levels]
    count = len(state.windows)
    if count < len(levels):
        warmup = float(state.load.warmup_seconds) * (1 if count == 0 else state.settings.settle_share)
        return Measure(levels[count], warmup, float(state.load.window_seconds), extends=False)
    found = verdicts(state)
    met = [verdict for verdict in found if verdict.meets]
    if not met and found[0].window.meets == "No":
        return ended(state, found[0], "BreaksConstraint")
    return ended(state, met[-1] if met else found[0], "Measured")


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
    if last.window.requests < _FEW:
        return _extended(state, min(whole, 2 * asked) - asked)
    unsure = last.window.meets == "Unsure" and last.ratio > 1 and last.kept_up
    twice = 2 * state.settings.probe_share * whole
    return _extended(state, min(whole, twice) - asked) if unsure else None


def _extended(state: State, seconds: float) -> Measure | None:
    if seconds <= 0:
        return None
    return Measure(state.windows[-1].level, 0.0, seconds, extends=True)


def _grown(state: State, found: Sequence[Verdict], best: Verdict) -> float | None:
    """Return the next higher level; None where more would give no more, or is not allowed."""
    settings, cap = state.settings, _cap(state)
    if best.level >= cap or best.rate <= 0:
        return None
    if state.load.mode == "closed":
        rates = [verdict.rate for verdict in found]
        if len(rates) > _DULL and max(rates[-_DULL:]) <= settings.knee * max(rates[:-_DULL]):
            return None
        factor = _AIM / best.ratio if best.ratio > 0 else settings.growth
        factor = min(settings.leap, max(settings.growth, factor))
        return min(cap, float(round(best.level * factor)))
    if len(found) == 1:
        alone = next((at.value for at in best.window.latencies if at.percentile == 50), 0.0)
        return min(cap, max(settings.growth * best.level, 0.5 / alone if alone > 0 else 0.0))
    return min(cap, settings.growth * best.level)


def _between(state: State, best: Verdict, broken: Verdict) -> float | None:
    """Return a level between the two, nearer to where the limit is expected; None where none could give more."""
    low, high = best.level, broken.level
    resolution = state.settings.resolution
    if broken.whole:  # short windows had misled: whole ones, fewer of them
        resolution **= 2
    if high / low <= resolution:
        return None
    if state.load.mode == "open":  # latency rises steeply only near the capacity, far from the geometric mean
        return (low + high) / 2
    if high - low <= 1 or broken.rate <= state.settings.knee * best.rate:
        return None
    place = 0.5
    if 0 < best.ratio < 1 < broken.ratio < math.inf:
        place = min(_FAR, max(_NEAR, -math.log(best.ratio) / math.log(broken.ratio / best.ratio)))
    return float(min(max(round(low * (high / low) ** place), low + 1), high - 1))


def _widest(state: State, found: Sequence[Verdict], best: Verdict) -> Verdict:
    """Return the level to report: the highest rate that meets; the fewest users who give as much as any number that meets.

    More users only wait longer, and a limit that is met closely may be broken the next time.
    """
    if state.load.mode == "open":
        return best
    met = [verdict for verdict in found if verdict.level <= best.level]
    top = max(verdict.rate for verdict in met)

    def gives_enough(
        verdict: Verdict,
    ) -> bool:  # a whole window is not given to one level after the other for a short one's luck
        share = 1 / state.settings.knee if verdict.whole else state.settings.enough
        return verdict.rate >= share * top

    return next(verdict for verdict in met if gives_enough(verdict))


def _whole(state: State, found: Sequence[Verdict], chosen: Verdict) -> Measure | Finished:
    """Give the level found a whole window, longer where that is not steady or does not decide; then end."""
    asked, whole = state.asked[chosen.index], float(state.load.window_seconds)
    if chosen.index != len(state.windows) - 1:
        return ended(state, chosen, "Measured") if asked >= whole else _fresh(state, chosen.level, whole=True)
    wanted = whole
    if not chosen.window.steady or (chosen.window.meets == "Unsure" and chosen.ratio > _CLEAR):
        wanted *= state.settings.most_windows
    return (
        _extended(state, wanted - asked) or _retreat(state, found, chosen) or ended(state, chosen, "Measured")
    )


def _retreat(state: State, found: Sequence[Verdict], chosen: Verdict) -> Measure | None:
    """Return a whole window of a lower load where the noise of this one's says that it may break a limit."""
    lowest = next((at for at in found if at.whole and at.level < chosen.level), chosen)
    tried = sum(at.whole and at.meets for at in found) - 1
    if not chosen.meets or min(chosen.careful, lowest.careful) <= 1 or tried >= state.settings.retreats:
        return None
    excess = min(max(lowest.careful, state.settings.resolution), state.settings.retreat)
    # Where users wait for each other latency grows as they do; near the capacity of an open loop much faster than its rate.
    closed = state.load.mode == "closed"
    level = float(math.floor(lowest.level / excess)) if closed else lowest.level / math.sqrt(excess)
    return _fresh(state, level, whole=True) if level >= found[0].level else None


def _retreats(found: Sequence[Verdict], chosen: Verdict) -> list[Verdict]:
    """Return lower levels that had a whole window."""
    return [at for at in found if at.level < chosen.level and at.whole]


def _safest(found: Sequence[Verdict], chosen: Verdict) -> Verdict:
    """Return the level to which was retreated, where that was worth it."""
    if not chosen.whole or chosen.careful <= 1:
        return chosen
    kept = [at for at in _retreats(found, chosen) if at.meets and _is_worth_it(at, chosen)]
    safe = [at for at in kept if at.careful <= 1]
    return (safe or kept or [chosen])[-1]


def _is_worth_it(lower: Verdict, chosen: Verdict) -> bool:
    """Whether a lower load has the margin that is wanted, or gained as much of it as it gave up: not where latency is a floor."""
    return lower.careful <= 1 or lower.careful / chosen.careful <= lower.rate / chosen.rate


def _cap(state: State) -> float:
    if state.load.max_level is not None:
        return _level(state, float(state.load.max_level))
    return state.settings.most_users if state.load.mode == "closed" else state.settings.most_rate


def _level(state: State, asked: float) -> float:
    """Return the level that can be driven: users are whole, and one at least."""
    return float(max(1, round(asked))) if state.load.mode == "closed" else asked
