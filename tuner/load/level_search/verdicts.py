"""What windows say of their levels, and what follows for the others; pure, and without a plan of what to do next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serving.resources.experiment import Constraint
from serving.resources.trial import Window
from tuner.constraints import bound_of, measured_value
from tuner.load.level_search.state import State
from tuner.load.windows.window_summary import margin

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
    whole: bool
    """It was to last as long as `windowSeconds`."""
    kept_up: bool
    """The answers were as many as the requests; always so in a closed loop."""
    closed: bool
    """It is of a closed loop."""
    fails: bool
    """Too many requests failed for a constraint, as far as is known: an error rate, or a percentile above which they all are."""

    @property
    def works(self) -> bool:
        """Whether the target did what it was asked; a short window is given the benefit of the doubt.

        Users may wait however long. A queue that is surely too long in an open loop may be one that grows for ever.
        """
        return self.kept_up and not self.fails and (self.closed or self.window.meets != "No")

    @property
    def breaks_surely(self) -> bool:
        """Whether the interval says that the constraints are not met."""
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
    closed = state.load.mode == "closed"
    kept_up = closed or window.throughput.high >= _KEPT_UP * arrived
    whole = state.asked[index] >= state.load.window_seconds
    fails = (whole or window.meets == "No") and any(_fails(window, one) for one in state.constraints)
    return Verdict(index, window, margin(window, state.constraints), whole, kept_up, closed, fails)


def _fails(window: Window, constraint: Constraint) -> bool:
    found = measured_value(window, constraint.metric, constraint.percentile)
    if constraint.metric == "errorRate":
        return found is not None and found.value > bound_of(constraint)
    return found is None and window.errors > 0


def lowest_failing(found: Sequence[Verdict]) -> Verdict | None:
    """Return the lowest load at which the target fails."""
    return next((verdict for verdict in found if not verdict.works), None)


def highest_working(found: Sequence[Verdict]) -> Verdict:
    """Return the highest load, with none below it at which the target fails; the least one where there is none."""
    end = lowest_failing(found)
    return next(
        (verdict for verdict in reversed(found) if end is None or verdict.level < end.level), found[0]
    )


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
