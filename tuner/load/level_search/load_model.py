"""The load model of a trial: curves through all its windows, and the highest load that meets the limits.

Pure.
Windows with a failing target (failed requests, or a growing queue) are on no curve: they mark its end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from serving.resources.experiment import Constraint
from serving.resources.trial import Estimate, LatencyAt, Window
from tuner import intervals
from tuner.constraints import bound_of, measured_value
from tuner.load.level_search import latency_curve
from tuner.load.level_search.latency_curve import Curve, Points, ScatterPrior
from tuner.load.level_search.state import State
from tuner.load.windows import estimates
from tuner.load.windows.samples import Floats
from tuner.load.windows.window_summary import Meets, meeting
from tuner.objective import TINY

Metric = Literal["latency", "ttft", "itl"]
Named = tuple[Metric, int]
"""Metric and percentile of a latency."""

_STEP = 1.01
"""Ratio between neighbouring candidate loads: a tenth of what one window can resolve."""
_ROUNDING = 1e-6
"""Tolerance for whole numbers of users in floating point."""
_ROUNDS = 3
"""Rounds of fitting near the load that the last fit found: by then it moves by less than its error."""


@dataclass(frozen=True)
class Curves:
    """Curves through all windows, weighted towards one load."""

    state: State
    latencies: Mapping[Named, Curve]
    cycle: Curve
    """Load over throughput: seconds between a user's answers; in an open loop, requests per answer."""

    def knee(self, loads: Floats, limited: Sequence[Constraint]) -> float:
        """Return the load above which latency grows faster than throughput; the last one if there is none."""
        rates = np.diff(self.rate(loads)[0])
        grows = [np.diff(self.excess(one, loads, 0.0)) for one in limited if _named(one) in self.latencies]
        beyond = np.flatnonzero(np.any([each >= rates for each in grows], axis=0))
        return float(loads[beyond[0]] if len(beyond) else loads[-1])

    def rate(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return the logarithms of the throughput at (n,) loads, and their standard deviations."""
        cycle, deviation = self.cycle.at(loads)
        return np.log(loads) - cycle, deviation

    def further(self, named: Named, loads: Floats) -> Floats:
        """Return the standard deviation of the log latency between whole windows at each load."""
        answers = np.exp(self.rate(loads)[0]) * self.state.load.window_seconds
        return np.hypot(
            self.latencies[named].scatter, latency_curve.sampling(np.maximum(answers, 1.0), named[1])
        )

    def excess(self, limit: Constraint, loads: Floats, deviations: float) -> Floats:
        """Return log(latency / limit) at each load, for a latency so many standard deviations above its mean.

        The deviation is that of another whole window: the curve's own, and that between windows. A latency
        without a curve is above every limit.
        """
        named = _named(limit)
        if named not in self.latencies:
            return np.full(len(loads), math.inf)
        mean, deviation = self.latencies[named].at(loads)
        unsure = np.hypot(deviation, self.further(named, loads))
        return np.asarray(mean + deviations * unsure - math.log(max(bound_of(limit), TINY)))


@dataclass(frozen=True)
class LoadModel:
    """A model of windows with a working target, at least one of which has answers."""

    state: State
    windows: tuple[Window, ...]
    beyond: tuple[Window, ...] = ()
    """In an open loop: windows whose queue grew until their end, so that their latencies are lower bounds."""

    @property
    def limited(self) -> list[Constraint]:
        """The constraints on latencies."""
        return [one for one in self.state.constraints if one.metric != "errorRate"]

    def curves(self, near: float | None, *, every: bool = False) -> Curves:
        """Return the curves of constrained latencies, or of `every` latency, fitted near a given load."""
        settings = self.state.settings
        prior = ScatterPrior(settings.scatter, settings.scatter_windows, settings.reach)
        seen = {(at.metric, at.percentile) for one in self.windows for at in one.latencies}
        wanted = seen if every else seen.intersection(_named(one) for one in self.limited)
        latencies = {
            named: latency_curve.through(
                self.state.load.mode, points, prior, near=near, least=_points(self.beyond, named)
            )
            for named in sorted(wanted)
            if (points := _points(self.windows, named)) is not None
        }
        told = [one for one in self.windows if one.throughput.value > 0]
        loads = np.array([one.level for one in told])
        cycle = np.log(loads / np.array([one.throughput.value for one in told]))
        prior = replace(prior, scatter=settings.rate_scatter)
        # The throughput of an open loop follows its rate up to the capacity: the same bend as in a closed
        # loop.
        start = 0.0 if self.state.load.mode == "open" else None
        points = Points(loads, cycle, 1 / np.sqrt(_answers(told)))
        return Curves(
            self.state, latencies, latency_curve.through("closed", points, prior, near=near, start=start)
        )

    def highest(self, roof: float, deviations: float) -> float:
        """Return the highest load up to `roof` that meets every limit by so many standard deviations.

        Below the knee no load is given up for the margin: there, less load costs more throughput than it
        gains latency. The lowest measured load if none meets the limits.
        """
        loads = self._candidates(roof)
        if not self.limited:
            return float(loads[-1])
        near: float | None = None
        for _ in range(_ROUNDS):
            found = _highest(self.curves(near), self.limited, loads, deviations)
            if found == near:
                break
            near = found
        return found

    def loads(self, step: float) -> list[float]:
        """Return loads from the lowest to the highest measured one, with a ratio of about `step`."""
        found: list[float] = []
        for load in self._candidates(max(window.level for window in self.windows)):
            if not found or self.state.load.levels or load >= step * found[-1]:
                found.append(float(load))
        return found

    def _candidates(self, roof: float) -> Floats:
        """Return the candidate loads, ascending, from the lowest measured one to `roof`."""
        low = min(window.level for window in self.windows)
        high = max(roof, low)
        if self.state.load.levels:
            return np.unique([window.level for window in self.windows if window.level <= high])
        found = np.geomspace(low, high, 1 + math.ceil(math.log(high / low) / math.log(_STEP)))
        return np.unique(np.floor(found + _ROUNDING)) if self.state.load.mode == "closed" else found

    def fewest(self, level: float, share: float) -> float:
        """Return the fewest users with this share of the throughput at `level`: more only wait longer."""
        loads = self._candidates(level)
        gives, _ = self.curves(level).rate(loads)
        return float(loads[np.flatnonzero(gives >= gives[-1] + math.log(share))[0]])

    def needs(self, level: float) -> tuple[float, ...]:
        """Return the least bound of each constraint that this load, or a higher one, would meet."""
        curves, at = self.curves(level), np.array([level])
        loads = self._candidates(max(window.level for window in self.windows))
        found = []
        for one in self.state.constraints:
            if one.metric == "errorRate":
                found.append(self._failures(level).value)
                continue
            below = level <= curves.knee(loads, [one])
            over = float(curves.excess(one, at, 0.0 if below else self.state.settings.safety)[0])
            found.append(bound_of(one) * math.exp(over))
        return tuple(found)

    def at(self, level: float, *, every: bool = True) -> Window:
        """Return the expected values of a load as a Window; those without a curve are the nearest window's.

        Without `every` it has only constrained latencies, as each latency costs a curve.
        """
        curves, nearest = self.curves(level, every=every), self._nearest(level)
        rate = self._rate(curves, level)
        each = nearest.tokens_per_second / max(nearest.throughput.value, TINY)
        further = [
            float(curves.further(named, np.array([level]))[0])
            for one in self.limited
            if (named := _named(one)) in curves.latencies
        ]
        read = nearest.model_copy(
            update={
                "level": level, "throughput": rate, "latencies": self._latencies(curves, level),
                "error_rate": self._failures(level), "tokens_per_second": each * rate.value,
                "start_time": self.windows[0].start_time,
                "seconds": sum(window.seconds for window in self.windows),
                "requests": sum(window.requests for window in self.windows),
                "errors": sum(window.errors for window in self.windows),
                "scatter": max(further, default=None),
            }
        )  # fmt: skip
        return read.model_copy(update={"meets": self._meets(read)})

    def _nearest(self, level: float) -> Window:
        """Return the window nearest to a load; of equally near ones the longest, then the last."""
        return min(
            reversed(self.windows), key=lambda one: (abs(math.log(one.level / level)), -round(one.seconds))
        )

    def _meets(self, read: Window) -> Meets:
        return meeting(
            (measured_value(read, one.metric, one.percentile), bound_of(one))
            for one in self.state.constraints
        )

    def _rate(self, curves: Curves, level: float) -> Estimate:
        """Estimate the throughput at a load.

        The interval includes the uncertainty of the highest feasible load.
        """
        step = np.array([level, level * _STEP])
        rates, unsure = curves.rate(step)
        variance = float(unsure[0]) ** 2
        if limit := self._tightest(curves, level):
            mean, deviation = curves.latencies[limit].at(step)
            slope, gain = float(mean[1] - mean[0]), float(rates[1] - rates[0])
            # Below the knee the limit does not determine the load.
            variance += (float(deviation[0]) * gain / slope) ** 2 if slope > gain else 0.0
        return _around(float(rates[0]), math.sqrt(variance))

    def _tightest(self, curves: Curves, level: float) -> Named | None:
        """Return the latency nearest to its limit, or furthest beyond it."""
        at = np.array([level])
        found = [(float(curves.excess(one, at, 0.0)[0]), _named(one)) for one in self.limited]
        known = [one for one in found if one[1] in curves.latencies]
        return max(known)[1] if known else None

    def _latencies(self, curves: Curves, level: float) -> list[LatencyAt]:
        """Return all percentiles, made monotonic, as their curves were fitted independently."""
        found: list[LatencyAt] = []
        for metric, percent in sorted(curves.latencies):
            mean, deviation = (
                float(each[0]) for each in curves.latencies[metric, percent].at(np.array([level]))
            )
            if found and found[-1].metric == metric:
                mean = max(mean, math.log(found[-1].value))
            around = _around(mean, deviation)
            found.append(LatencyAt(metric=metric, percentile=percent, **around.model_dump()))
        return found

    def _failures(self, level: float) -> Estimate:
        """Estimate the share of failures from all windows at this load or lower ones."""
        rows = []
        for window in self.windows:
            if window.level <= level:
                # A request that waited all window long failed, but has not ended.
                failed = max(window.errors, round(window.error_rate.value * window.requests))
                rows.append(np.repeat([0.0, 1.0], [window.requests - failed, failed]))
        return estimates.share(np.concatenate(rows))


def _highest(curves: Curves, limited: Sequence[Constraint], loads: Floats, deviations: float) -> float:
    within = [
        np.flatnonzero(np.max([curves.excess(one, loads, sure) for one in limited], axis=0) <= 0)
        for sure in (0.0, deviations)
    ]
    met, safe = (float(loads[rows[-1]] if len(rows) else loads[0]) for rows in within)
    return max(safe, min(met, curves.knee(loads, limited))) if deviations else met


def _points(windows: Sequence[Window], named: Named) -> Points | None:
    """Return the points of a latency; None if no window has a value."""
    told = [
        (one, found)
        for one in windows
        if (found := measured_value(one, *named)) is not None and found.value > 0
    ]
    if not told:
        return None
    return Points(
        np.array([one.level for one, _ in told]),
        np.log([found.value for _, found in told]),
        latency_curve.sampling(_answers([one for one, _ in told]), named[1]),
    )


def _answers(windows: Sequence[Window]) -> Floats:
    return np.array([max(1, one.requests - one.errors) for one in windows], dtype=np.float64)


def _named(limit: Constraint) -> Named:
    assert limit.metric != "errorRate"
    return limit.metric, limit.percentile


def _around(log: float, deviation: float) -> Estimate:
    half = intervals.Z95 * deviation
    return Estimate(value=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def fit(state: State, windows: Sequence[Window], beyond: Sequence[Window]) -> LoadModel | None:
    """Return the model of windows, in an open loop with those `beyond` its end.

    None if none has an answer.
    """
    if not any(window.throughput.value > 0 for window in windows):
        return None
    return LoadModel(state, tuple(windows), tuple(beyond) if state.load.mode == "open" else ())
