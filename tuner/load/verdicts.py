"""What windows say of their levels, and what follows for the others; pure, and without a plan of what to do next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serving.resources.trial import Window
from tuner.load.statistics import careful_margin, margin
from tuner.load.steps import State

_KEPT_UP = 0.97
"""Share of an open loop's rate that must be answered: below it the queue grows, and latency with it, for ever."""
_CHANCE = 2.0
"""Standard deviations of a Poisson count by which fewer requests than planned may have come."""


@dataclass(frozen=True)
class Verdict:
    """Of one level, by its last window."""

    index: int
    """Of the window."""
    window: Window
    ratio: float
    """The worst of what was measured to what is allowed."""
    careful: float
    """The same where each latency is higher by what its noise may hide."""
    whole: bool
    """It was to last as long as `windowSeconds`."""
    kept_up: bool
    """The answers were as many as the requests; always so in a closed loop."""

    @property
    def meets(self) -> bool:
        """Whether the constraints are met as far as is known.

        Where the interval does not say, the estimate of a whole window does; a short one is given the benefit of the doubt: a p99 of few
        requests is the slowest of them, and a level that is found in error does not survive its whole window.
        """
        if not self.kept_up or self.window.meets == "No":
            return False
        return self.window.meets == "Yes" or self.ratio <= 1 or not self.whole

    @property
    def breaks_surely(self) -> bool:
        """Whether the interval says that they are not."""
        return self.window.meets == "No" or not self.kept_up

    @property
    def level(self) -> float:
        """Users, or requests per second."""
        return self.window.level

    @property
    def rate(self) -> float:
        """Requests per second answered."""
        return self.window.throughput.value


def verdicts(state: State) -> list[Verdict]:
    """Return one for each level, ascending."""
    last = {window.level: index for index, window in enumerate(state.windows)}
    return [_verdict(state, last[level]) for level in sorted(last)]


def _verdict(state: State, index: int) -> Verdict:
    window = state.windows[index]
    arrived = window.level - _CHANCE * math.sqrt(window.level / max(window.seconds, 1e-9))
    kept_up = state.load.mode == "closed" or window.throughput.high >= _KEPT_UP * arrived
    careful = careful_margin(window, state.constraints, state.settings.safety)
    whole = state.asked[index] >= state.load.window_seconds
    return Verdict(index, window, margin(window, state.constraints), careful, whole, kept_up)


def lowest_broken(found: Sequence[Verdict]) -> Verdict | None:
    """Return the lowest level that breaks a constraint, as far as is known."""
    return next((verdict for verdict in found if not verdict.meets), None)


def highest_met(found: Sequence[Verdict]) -> Verdict | None:
    """Return the highest level that meets the constraints, with none below it that breaks them."""
    broken = lowest_broken(found)
    met = [verdict for verdict in found if broken is None or verdict.level < broken.level]
    return met[-1] if met else None


def ceiling(state: State, found: Sequence[Verdict], cap: float) -> float:
    """Return requests per second that no load which meets the constraints gives; see stages.py for what it rests on."""
    broken = min((verdict.level for verdict in found if verdict.breaks_surely), default=None)
    if state.load.mode == "open":
        return cap if broken is None else broken
    most = cap if broken is None else broken - 1
    return min(
        (verdict.window.throughput.high * most / verdict.level for verdict in found if verdict.level <= most),
        default=float("inf"),
    )
