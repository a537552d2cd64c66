"""The verdict on each measured level by its last window. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.trial import Window
from tuner.constraints import bound_of, measured_value
from tuner.load.level_search.state import State
from tuner.load.windows.backlog import ANSWERED_SHARE, CHANCE_DEVIATIONS
from tuner.load.windows.window_summary import worst_ratio


@dataclass(frozen=True)
class LevelVerdict:
    """The verdict on one level by its last window."""

    index: int
    """Index of the window."""
    window: Window
    ratio: float
    """Greatest ratio of a constraint's measured value to its bound: above 1 a constraint is broken."""
    full_length: bool
    """Whether the window was planned for `windowSeconds`."""
    kept_up: bool
    """Whether answers kept up with requests; always true in a closed loop."""
    closed: bool
    """Whether the loop is closed."""
    fails: bool
    """Whether failures exceed the limit of an error rate, or reach a constrained percentile.

    Of a short window only if its `meets` is No.
    """

    @property
    def works(self) -> bool:
        """Whether the target handled the load; a short window gets the benefit of the doubt.

        Users of a closed loop may wait for any time; the queue of an open loop may grow for ever.
        """
        return self.kept_up and not self.fails and (self.closed or self.window.meets != "No")

    @property
    def breaks_surely(self) -> bool:
        """Whether the 95 % interval of a constraint's value is beyond its bound, or the queue grew."""
        return self.window.meets == "No" or not self.kept_up

    @property
    def level(self) -> float:
        """Users, or requests per second."""
        return self.window.level

    @property
    def rate(self) -> float:
        """Requests per second answered."""
        return self.window.throughput.value


def level_verdicts(state: State) -> list[LevelVerdict]:
    """Return the verdict on each level, ascending."""
    last_index = {window.level: index for index, window in enumerate(state.windows)}
    return [_verdict(state, last_index[level]) for level in sorted(last_index)]


def _verdict(state: State, index: int) -> LevelVerdict:
    window = state.windows[index]
    closed = state.load.mode == "closed"
    kept_up = closed or (_answers_rate(window) if window.kept_up is None else window.kept_up)
    full_length = state.planned[index] >= state.load.window_seconds
    fails = (full_length or window.meets == "No") and any(
        _fails(window, constraint) for constraint in state.constraints
    )
    return LevelVerdict(
        index=index,
        window=window,
        ratio=worst_ratio(window, state.constraints),
        full_length=full_length,
        kept_up=kept_up,
        closed=closed,
        fails=fails,
    )


def _answers_rate(window: Window) -> bool:
    """Return whether a window of an earlier release, which lacks `kept_up`, answered as many as its rate."""
    deviation = math.sqrt(window.level / max(window.seconds, 1e-9))  # of a Poisson count, per second
    least_arrived = window.level - CHANCE_DEVIATIONS * deviation
    return window.throughput.high >= ANSWERED_SHARE * least_arrived


def _fails(window: Window, constraint: Constraint) -> bool:
    """Return whether failed requests alone break a constraint.

    A latency without a value is one that failed requests reach; without a failure, nothing was measured.
    """
    measured = measured_value(window, constraint.metric, constraint.percentile)
    if constraint.metric == "errorRate":
        return measured is not None and measured.value > bound_of(constraint)
    return measured is None and window.errors > 0


def lowest_failing(verdicts: Sequence[LevelVerdict]) -> LevelVerdict | None:
    """Return the lowest load that the target cannot handle."""
    return next((verdict for verdict in verdicts if not verdict.works), None)


def highest_working(verdicts: Sequence[LevelVerdict]) -> LevelVerdict:
    """Return the highest load below every failing one; the least load if there is none."""
    end = lowest_failing(verdicts)
    return next(
        (verdict for verdict in reversed(verdicts) if end is None or verdict.level < end.level), verdicts[0]
    )


def ceiling(state: State, verdicts: Sequence[LevelVerdict], cap: float) -> float:
    """Return an upper limit of the throughput (requests/s) of loads that meet the constraints.

    highest_load.py has the assumption, at CannotBeatBest. `cap` is the highest allowed level.
    """
    broken = min((verdict.level for verdict in verdicts if verdict.breaks_surely), default=None)
    if state.load.mode == "open":
        return cap if broken is None else broken
    most = cap if broken is None else broken - 1
    return min(
        (
            verdict.window.throughput.high * most / verdict.level
            for verdict in verdicts
            if verdict.level <= most
        ),
        default=float("inf"),
    )
