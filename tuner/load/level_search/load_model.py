"""What all windows of a trial together say of a load: curves through them, the highest load that meets the limits, and what it gives. Pure.

Windows whose target failed (requests, or to keep up with its rate) are on no curve: they say where the curves end.
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
"""A latency's metric and percentile."""

_STEP = 1.01
"""From one load that is looked at to the next: a tenth of what one window can tell."""
_ROUNDING = 1e-6
"""Of users: less than nobody, and more than what floating point makes of whole numbers."""
_ROUNDS = 3
"""In which curves are bent to the load that they themselves find: by then it moves by less than its error."""


@dataclass(frozen=True)
class Curves:
    """Through all windows, those near one load above all."""

    state: State
    latencies: Mapping[Named, Curve]
    cycle: Curve
    """Load over throughput: the seconds from one answer to the next of a user; of an open loop how many requests there are to an answer."""

    def knee(self, loads: Floats, limited: Sequence[Constraint]) -> float:
        """Return the load from which on more of it makes latency grow faster than throughput; the last one where none does."""
        rates = np.diff(self.rate(loads)[0])
        grows = [np.diff(self.excess(one, loads, 0.0)) for one in limited if _named(one) in self.latencies]
        beyond = np.flatnonzero(np.any([each >= rates for each in grows], axis=0))
        return float(loads[beyond[0]] if len(beyond) else loads[-1])

    def rate(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return logarithms of the answers per second at (n,) loads, and their standard deviation."""
        cycle, deviation = self.cycle.at(loads)
        return np.log(loads) - cycle, deviation

    def further(self, named: Named, loads: Floats) -> Floats:
        """Return by how much a whole window at each load is apart from the next one, as the logarithm's standard deviation."""
        answers = np.exp(self.rate(loads)[0]) * self.state.load.window_seconds
        return np.hypot(
            self.latencies[named].scatter, latency_curve.sampling(np.maximum(answers, 1.0), named[1])
        )

    def excess(self, limit: Constraint, loads: Floats, deviations: float) -> Floats:
        """Return how far above its limit a latency would be, as a logarithm, where it is so many standard deviations higher.

        The deviation is that of another whole window at this load: the curve's own, and that of windows around it. What was never seen is
        above every limit.
        """
        named = _named(limit)
        if named not in self.latencies:
            return np.full(len(loads), math.inf)
        mean, deviation = self.latencies[named].at(loads)
        unsure = np.hypot(deviation, self.further(named, loads))
        return np.asarray(mean + deviations * unsure - math.log(max(bound_of(limit), TINY)))


@dataclass(frozen=True)
class LoadModel:
    """Of windows whose target did what it was asked, at least one of which has answers."""

    state: State
    windows: tuple[Window, ...]
    beyond: tuple[Window, ...] = ()
    """Of an open loop: windows whose queue still grew when they ended, of which is known that it was so long at least."""

    @property
    def limited(self) -> list[Constraint]:
        """The latencies that have a limit."""
        return [one for one in self.state.constraints if one.metric != "errorRate"]

    def curves(self, near: float | None, *, every: bool = False) -> Curves:
        """Return the curves of what has a limit, or of `every` latency, bent to one load where there is one that matters."""
        settings = self.state.settings
        belief = ScatterPrior(settings.scatter, settings.scatter_windows, settings.reach)
        seen = {(at.metric, at.percentile) for one in self.windows for at in one.latencies}
        wanted = seen if every else seen.intersection(_named(one) for one in self.limited)
        latencies = {
            named: latency_curve.through(
                self.state.load.mode, points, belief, near=near, least=_points(self.beyond, named)
            )
            for named in sorted(wanted)
            if (points := _points(self.windows, named)) is not None
        }
        told = [one for one in self.windows if one.throughput.value > 0]
        loads = np.array([one.level for one in told])
        cycle = np.log(loads / np.array([one.throughput.value for one in told]))
        belief = replace(belief, scatter=settings.rate_scatter)
        # An open loop's answers are its requests up to the capacity, and no more beyond it: that, too, is a closed loop's bend.
        start = 0.0 if self.state.load.mode == "open" else None
        points = Points(loads, cycle, 1 / np.sqrt(_answers(told)))
        return Curves(
            self.state, latencies, latency_curve.through("closed", points, belief, near=near, start=start)
        )

    def highest(self, roof: float, deviations: float) -> float:
        """Return the highest load up to `roof` that meets every limit even where latencies are so many deviations higher.

        Nothing is given up for that below the knee: where less load makes latency lower by less than throughput, latency is a floor, and
        what is near to its limit stays so at any load. The lowest load that was measured where none meets the limits at all.
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
        """Return loads from the lowest to the highest that was measured, ascending, about `step` times the last one each."""
        found: list[float] = []
        for load in self._candidates(max(window.level for window in self.windows)):
            if not found or self.state.load.levels or load >= step * found[-1]:
                found.append(float(load))
        return found

    def _candidates(self, roof: float) -> Floats:
        """Return the loads that could be asked for, ascending: from the lowest that was measured to `roof`."""
        low = min(window.level for window in self.windows)
        high = max(roof, low)
        if self.state.load.levels:
            return np.unique([window.level for window in self.windows if window.level <= high])
        found = np.geomspace(low, high, 1 + math.ceil(math.log(high / low) / math.log(_STEP)))
        return np.unique(np.floor(found + _ROUNDING)) if self.state.load.mode == "closed" else found

    def fewest(self, level: float, share: float) -> float:
        """Return the fewest users who are expected to give this share of what so many users give: more only wait longer."""
        loads = self._candidates(level)
        gives, _ = self.curves(level).rate(loads)
        return float(loads[np.flatnonzero(gives >= gives[-1] + math.log(share))[0]])

    def needs(self, level: float) -> tuple[float, ...]:
        """Return for each constraint the least bound with which this load, or a higher one, would be found."""
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
        """Return what is expected of a load, in a window's words; what has no curve is the nearest window's.

        Without `every` its latencies are those that have a limit: of the others each costs a curve.
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
        """Return the window nearest to a load, the longest and then the last of those that are equally near."""
        return min(
            reversed(self.windows), key=lambda one: (abs(math.log(one.level / level)), -round(one.seconds))
        )

    def _meets(self, read: Window) -> Meets:
        return meeting(
            (measured_value(read, one.metric, one.percentile), bound_of(one))
            for one in self.state.constraints
        )

    def _rate(self, curves: Curves, level: float) -> Estimate:
        """Estimate the answers per second at the highest load that meets: how sure that load is, is part of it."""
        step = np.array([level, level * _STEP])
        rates, unsure = curves.rate(step)
        variance = float(unsure[0]) ** 2
        if limit := self._tightest(curves, level):
            mean, deviation = curves.latencies[limit].at(step)
            slope, gain = float(mean[1] - mean[0]), float(rates[1] - rates[0])
            # Below the knee the limit is not what holds the load.
            variance += (float(deviation[0]) * gain / slope) ** 2 if slope > gain else 0.0
        return _around(float(rates[0]), math.sqrt(variance))

    def _tightest(self, curves: Curves, level: float) -> Named | None:
        """Return the latency that is nearest to its limit, or the furthest beyond it."""
        at = np.array([level])
        found = [(float(curves.excess(one, at, 0.0)[0]), _named(one)) for one in self.limited]
        known = [one for one in found if one[1] in curves.latencies]
        return max(known)[1] if known else None

    def _latencies(self, curves: Curves, level: float) -> list[LatencyAt]:
        """Return every percentile; of curves that were fitted one by one a higher percentile could be below a lower one."""
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
        """Estimate the share that fails from all windows of loads that are no higher."""
        rows = []
        for window in self.windows:
            if window.level <= level:
                # Who waited all the window through has failed, and is no request that was over.
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
    """Return what windows saw of a latency; None where none has a number."""
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


def of(state: State, windows: Sequence[Window], beyond: Sequence[Window]) -> LoadModel | None:
    """Return what windows say, and of an open loop those `beyond` its end; None where none of them has an answer."""
    if not any(window.throughput.value > 0 for window in windows):
        return None
    return LoadModel(state, tuple(windows), tuple(beyond) if state.load.mode == "open" else ())
