"""The load model of a trial: curves through all windows, and the highest load that meets the limits. Pure.

Windows from the lowest failing load on (failed requests; in an open loop a growing queue, or a surely broken
limit) are on no curve: they mark its end, and in an open loop bound it from below.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.trial import Estimate, LatencyAt, Window
from tuner import intervals
from tuner.constraints import bound_of, measured_value
from tuner.load.level_search import latency_curve
from tuner.load.level_search.latency_curve import LatencyCurve, Points, ScatterPrior
from tuner.load.level_search.state import State
from tuner.load.windows import estimates
from tuner.load.windows.samples import Floats
from tuner.load.windows.window_summary import Meets, within_bounds
from tuner.objective import TINY

Metric = Literal["latency", "ttft", "itl"]
LatencyKey = tuple[Metric, int]
"""Metric and percentile of a latency."""

SAFETY = 2.5
"""Standard deviations of a window by which latencies stay below their limits at the resulting load: 99 of 100
such windows of the same minute then meet them (2.33), and some more, as the search asks the same of the
estimate from several trials, which is less certain than each of them."""
PRIOR = ScatterPrior(scatter=0.2, worth=20.0, reach=1.5)
"""The scatter of a latency percentile between windows, beside the error of few requests: the windows of the
recorded trials are 0.27 off their curves, those far from the limit included (`benchmarks/trial_readings.py`).
It weighs 20 windows: the ten of a trial say little about their own scatter, and an allowance that varies
between trials makes their throughput vary. At a distance of 1.5 in log load a window has 0.6 of the weight of
a near one: the models of latency hold for a range of loads, not for all."""
RATE_SCATTER = 0.07
"""The same scatter for throughput; the recorded trials are 0.09 off."""
_STEP = 1.01
"""Ratio between neighbouring candidate loads: a tenth of the resolution of one window."""
_ROUNDING = 1e-6
"""Tolerance of floating point when users are rounded down."""
_ROUNDS = 3
"""Rounds of fitting near the last fit's highest load: by then it moves by less than its error."""


@dataclass(frozen=True)
class Curves:
    """Curves through all windows, weighted towards one load."""

    state: State
    latencies: Mapping[LatencyKey, LatencyCurve]
    cycle: LatencyCurve
    """Load over throughput: seconds between answers to a user; in an open loop, requests per answer."""

    def knee(self, loads: Floats, limited: Sequence[Constraint]) -> float:
        """Return the load above which a limited latency grows faster than throughput.

        It is one of the ascending `loads`, the last one if no latency does. Both growths are logarithms of
        the ratio between neighbouring loads.
        """
        rate_growth = np.diff(self.rate(loads)[0])
        latency_growths = [
            np.diff(self.excess(limit, loads, 0.0)) for limit in limited if _key(limit) in self.latencies
        ]
        beyond = np.flatnonzero(np.any([growth >= rate_growth for growth in latency_growths], axis=0))
        return float(loads[beyond[0]] if len(beyond) else loads[-1])

    def rate(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return the logarithms of the throughput at (n,) loads, and their standard deviations."""
        cycle, deviation = self.cycle.at(loads)
        return np.log(loads) - cycle, deviation

    def repeat_deviation(self, key: LatencyKey, loads: Floats) -> Floats:
        """Return the standard deviation of the log latency between whole windows of each load."""
        answers = np.exp(self.rate(loads)[0]) * self.state.load.window_seconds
        return np.hypot(
            self.latencies[key].scatter, latency_curve.sampling_deviation(np.maximum(answers, 1.0), key[1])
        )

    def excess(self, limit: Constraint, loads: Floats, deviations: float) -> Floats:
        """Return log(latency / limit) at each of (n,) loads: above 0 the latency breaks the limit.

        The latency is its mean plus so many standard deviations of another whole window. A latency without a
        curve exceeds every limit.
        """
        key = _key(limit)
        if key not in self.latencies:
            return np.full(len(loads), math.inf)
        mean, deviation = self.latencies[key].at(loads)
        combined = np.hypot(deviation, self.repeat_deviation(key, loads))
        return np.asarray(mean + deviations * combined - math.log(max(bound_of(limit), TINY)))


@dataclass(frozen=True)
class LoadModel:
    """A model of windows with a working target; at least one window has answers."""

    state: State
    windows: tuple[Window, ...]
    beyond: tuple[Window, ...] = ()
    """In an open loop: windows from the lowest failing load on; their latencies are lower bounds, as the
    queue may have grown until their end."""
    _fitted: dict[tuple[LatencyKey | None, float | None], LatencyCurve] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Curves that were fitted before, by latency (None: the cycle) and load of interest."""

    @property
    def limited(self) -> list[Constraint]:
        """The constraints on latencies."""
        return [constraint for constraint in self.state.constraints if constraint.metric != "errorRate"]

    def curves(self, near: float | None, *, every: bool = False) -> Curves:
        """Return the curves of constrained latencies, or of `every` latency.

        Windows far from the load `near` have less weight; None gives all windows the same.
        """
        limited = {_key(limit) for limit in self.limited}
        latencies = {key: self._latency(key, near) for key in self._measured if every or key in limited}
        return Curves(self.state, latencies, self._cycle(near))

    @cached_property
    def _measured(self) -> dict[LatencyKey, tuple[Points, Points | None]]:
        """The points of each latency in the windows, and in those `beyond`."""
        keys = {(at.metric, at.percentile) for window in self.windows for at in window.latencies}
        return {
            key: (points, _points(self.beyond, key))
            for key in sorted(keys)
            if (points := _points(self.windows, key)) is not None
        }

    @cached_property
    def _cycles(self) -> Points:
        """The points of `Curves.cycle`."""
        answered = [window for window in self.windows if window.throughput.value > 0]
        loads = np.array([window.level for window in answered])
        cycle = np.log(loads / np.array([window.throughput.value for window in answered]))
        return Points(loads, cycle, 1 / np.sqrt(_answers(answered)))

    def _latency(self, key: LatencyKey, near: float | None) -> LatencyCurve:
        if (key, near) not in self._fitted:
            points, lower_bounds = self._measured[key]
            self._fitted[key, near] = latency_curve.through(
                self.state.load.mode, points, PRIOR, near=near, lower_bounds=lower_bounds
            )
        return self._fitted[key, near]

    def _cycle(self, near: float | None) -> LatencyCurve:
        if (None, near) not in self._fitted:
            prior = replace(PRIOR, scatter=RATE_SCATTER)
            # The throughput of an open loop follows its rate up to the capacity, with the bend of a closed
            # loop.
            start = 0.0 if self.state.load.mode == "open" else None
            self._fitted[None, near] = latency_curve.through(
                "closed", self._cycles, prior, near=near, start=start
            )
        return self._fitted[None, near]

    def highest(self, roof: float, deviations: float) -> float:
        """Return the highest load up to `roof` that meets every limit by `deviations` standard deviations.

        The deviations are those of another whole window. This allowance never lowers the load below the knee,
        where less load costs more throughput than it gains latency. If no load meets the limits, the lowest
        measured one is returned.
        """
        loads = self._candidates(roof)
        if not self.limited:
            return float(loads[-1])
        near: float | None = None
        for _ in range(_ROUNDS):  # each round weights the windows around the last round's result
            highest = _highest(self.curves(near), self.limited, loads, deviations)
            if highest == near:
                break
            near = highest
        return highest

    def loads(self, step: float) -> list[float]:
        """Return loads from the lowest to the highest measured one, with a ratio of about `step`.

        Of a load with `levels`, these are all measured levels.
        """
        loads: list[float] = []
        for load in self._candidates(max(window.level for window in self.windows)):
            if not loads or self.state.load.levels or load >= step * loads[-1]:
                loads.append(float(load))
        return loads

    def _candidates(self, roof: float) -> Floats:
        """Return the candidate loads, ascending, from the lowest measured one to `roof`."""
        low = min(window.level for window in self.windows)
        high = max(roof, low)
        if self.state.load.levels:
            return np.unique([window.level for window in self.windows if window.level <= high])
        grid = np.geomspace(low, high, 1 + math.ceil(math.log(high / low) / math.log(_STEP)))
        return np.unique(np.floor(grid + _ROUNDING)) if self.state.load.mode == "closed" else grid

    def fewest(self, level: float, share: float) -> float:
        """Return the fewest users with at least this share of the throughput at `level`."""
        loads = self._candidates(level)
        log_rates, _ = self.curves(level).rate(loads)
        enough = np.flatnonzero(log_rates >= log_rates[-1] + math.log(share))
        return float(loads[enough[0]])

    def needs(self, level: float) -> tuple[float, ...]:
        """Return the least bound of each constraint that this load, or a higher one, would meet.

        A bound is in seconds, or a share of failed requests. The allowance is that of `highest`: none up to
        the knee, `SAFETY` standard deviations above it.
        """
        curves, at = self.curves(level), np.array([level])
        loads = self._candidates(max(window.level for window in self.windows))
        bounds = []
        for constraint in self.state.constraints:
            if constraint.metric == "errorRate":
                bounds.append(self._failures(level).value)
                continue
            is_below_knee = level <= curves.knee(loads, [constraint])
            allowance = 0.0 if is_below_knee else SAFETY
            excess = float(curves.excess(constraint, at, allowance)[0])
            bounds.append(bound_of(constraint) * math.exp(excess))
        return tuple(bounds)

    def at(self, level: float, *, every: bool = True) -> Window:
        """Return the expected values of a load as a Window.

        Start, duration and counts are those of all windows, the error rate is that of windows up to this
        load, other values without a curve are the nearest window's. Without `every` it has only constrained
        latencies, as each latency costs a curve.
        """
        curves, nearest = self.curves(level, every=every), self._nearest(level)
        rate = self._rate(curves, level)
        deviations = [
            float(curves.repeat_deviation(key, np.array([level]))[0])
            for limit in self.limited
            if (key := _key(limit)) in curves.latencies
        ]
        window = nearest.model_copy(
            update={
                "level": level,
                "throughput": rate,
                "latencies": self._latencies(curves, level),
                "error_rate": self._failures(level),
                "tokens_per_second": self._tokens_per_answer * rate.value,
                "prompt_tokens_per_second": self._prompt_tokens_per_answer * rate.value,
                "start_time": self.windows[0].start_time,
                "seconds": sum(each.seconds for each in self.windows),
                "requests": sum(each.requests for each in self.windows),
                "errors": sum(each.errors for each in self.windows),
                "scatter": max(deviations, default=None),
            }
        )
        return window.model_copy(update={"meets": self._meets(window)})

    @cached_property
    def _tokens_per_answer(self) -> float:
        """Mean number of tokens of an answer in all windows: its length does not depend on the load."""
        tokens = sum(window.tokens_per_second * window.seconds for window in self.windows)
        return tokens / max(self._answered, TINY)

    @cached_property
    def _prompt_tokens_per_answer(self) -> float:
        """Mean number of prompt tokens of an answer in all windows; 0 if it is unknown in one of them."""
        answered = [window for window in self.windows if window.throughput.value > 0]
        if any(window.prompt_tokens_per_second <= 0 for window in answered):
            return 0.0
        tokens = sum(window.prompt_tokens_per_second * window.seconds for window in answered)
        return tokens / max(self._answered, TINY)

    @property
    def _answered(self) -> float:
        """Number of answers in all windows."""
        return sum(window.throughput.value * window.seconds for window in self.windows)

    def _nearest(self, level: float) -> Window:
        """Return the window nearest to a load; of equally near windows the longest, then the last."""
        return min(
            reversed(self.windows),
            key=lambda window: (abs(math.log(window.level / level)), -round(window.seconds)),
        )

    def _meets(self, window: Window) -> Meets:
        return within_bounds(
            (measured_value(window, constraint.metric, constraint.percentile), bound_of(constraint))
            for constraint in self.state.constraints
        )

    def _rate(self, curves: Curves, level: float) -> Estimate:
        """Estimate the throughput at a load, including the uncertainty of the highest feasible load.

        If the latency may be d higher (in logarithms) than its curve, the feasible load is lower, and the
        throughput with it: by d times the throughput's slope over the latency's.
        """
        step = np.array([level, level * _STEP])
        log_rates, deviations = curves.rate(step)
        variance = float(deviations[0]) ** 2
        if limit := self._tightest(curves, level):
            log_latencies, latency_deviations = curves.latencies[limit].at(step)
            latency_gain = float(log_latencies[1] - log_latencies[0])
            rate_gain = float(log_rates[1] - log_rates[0])
            if latency_gain > rate_gain:  # below the knee the limit does not determine the load
                variance += (float(latency_deviations[0]) * rate_gain / latency_gain) ** 2
        return _around(float(log_rates[0]), math.sqrt(variance))

    def _tightest(self, curves: Curves, level: float) -> LatencyKey | None:
        """Return the latency nearest to its limit, or furthest beyond it."""
        at = np.array([level])
        excesses = [
            (float(curves.excess(limit, at, 0.0)[0]), _key(limit))
            for limit in self.limited
            if _key(limit) in curves.latencies
        ]
        return max(excesses)[1] if excesses else None

    def _latencies(self, curves: Curves, level: float) -> list[LatencyAt]:
        """Return the latencies of all curves; a higher percentile is never below a lower one.

        The percentiles' curves were fitted independently, and may cross.
        """
        latencies: list[LatencyAt] = []
        for metric, percent in sorted(curves.latencies):
            mean, deviation = (
                float(each[0]) for each in curves.latencies[metric, percent].at(np.array([level]))
            )
            if latencies and latencies[-1].metric == metric:
                mean = max(mean, math.log(latencies[-1].value))
            estimate = _around(mean, deviation)
            latencies.append(LatencyAt(metric=metric, percentile=percent, **estimate.model_dump()))
        return latencies

    def _failures(self, level: float) -> Estimate:
        """Estimate the share of failures from all windows at this load or lower ones."""
        rows = []
        for window in self.windows:
            if window.level <= level:
                # Waiting requests may count as failed, but have not ended.
                failed = max(window.errors, round(window.error_rate.value * window.requests))
                rows.append(np.repeat([0.0, 1.0], [window.requests - failed, failed]))
        return estimates.share(np.concatenate(rows))


def _highest(curves: Curves, limited: Sequence[Constraint], loads: Floats, deviations: float) -> float:
    """Return `LoadModel.highest` of the ascending candidate `loads`, by these curves."""
    met = _highest_within(curves, limited, loads, 0.0)
    if not deviations:
        return met
    safe = _highest_within(curves, limited, loads, deviations)
    return max(safe, min(met, curves.knee(loads, limited)))


def _highest_within(curves: Curves, limited: Sequence[Constraint], loads: Floats, deviations: float) -> float:
    """Return the highest of the loads that exceed no limit; the lowest load if each exceeds one."""
    worst = np.max([curves.excess(limit, loads, deviations) for limit in limited], axis=0)
    rows = np.flatnonzero(worst <= 0)
    return float(loads[rows[-1]] if len(rows) else loads[0])


def _points(windows: Sequence[Window], key: LatencyKey) -> Points | None:
    """Return the points of a latency; None if no window has a value."""
    measured = [
        (window, latency)
        for window in windows
        if (latency := measured_value(window, *key)) is not None and latency.value > 0
    ]
    if not measured:
        return None
    return Points(
        np.array([window.level for window, _ in measured]),
        np.log([latency.value for _, latency in measured]),
        latency_curve.sampling_deviation(_answers([window for window, _ in measured]), key[1]),
    )


def _answers(windows: Sequence[Window]) -> Floats:
    return np.array([max(1, window.requests - window.errors) for window in windows], dtype=np.float64)


def _key(limit: Constraint) -> LatencyKey:
    assert limit.metric != "errorRate"
    return limit.metric, limit.percentile


def _around(log: float, deviation: float) -> Estimate:
    """Return the value of a logarithm and its 95 % interval, by the logarithm's standard deviation."""
    half = intervals.Z95 * deviation
    return Estimate(value=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def fit(state: State, windows: Sequence[Window], beyond: Sequence[Window]) -> LoadModel | None:
    """Return the model of windows; None if none has an answer.

    An open loop's model also uses the windows `beyond` the highest working load.
    """
    if not any(window.throughput.value > 0 for window in windows):
        return None
    return LoadModel(state, tuple(windows), tuple(beyond) if state.load.mode == "open" else ())
