"""Forecasts of recorded load: coverage of the interval, skill against simple forecasts, cost of a fit.

Every trace of --traces is read in steps of five seconds, as are the last three days before it (earlier days
in minutes), and forecast 30 and 120 s ahead. The forecast quantity is the rate by which the policy sizes: the
rate that would have served the last seconds in time.

`coverage` is the percent of readings at or below the 90 % quantile; `interval` is the percent from the 5 % to
the 95 % quantile. Skill is the percent of a simple forecast's pinball loss (10, 50 and 90 %) that ours
avoids. The simple forecasts are the last value, an average of 90 s, and a day before, each with conformal
intervals of its own. A fit is the worker's half-hourly fit of one target, on its CPU clock.
"""

import argparse
import math
import resource
import statistics
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rig.harness import Bar, report
from rig.scaling import runs

from autoscaler.forecast.fit import fit
from autoscaler.forecast.forecaster import Forecaster
from autoscaler.forecast.horizon import Horizon
from autoscaler.simulate.workloads import scenarios
from autoscaler.simulate.workloads.scenarios import Recipe

AHEAD = (30.0, 120.0)
STEP = 5
SHARES = (0.1, 0.5, 0.9)
INTERVAL = (0.05, 0.95)
REFIT = 1800
DAY = 86_400
SLOW = 90.0
SIMPLE = ("last", "average", "day before")
LEAD = 1800
"""Seconds that are not scored without earlier history."""
LEAST_SCORED = 900
"""Seconds for which a simple forecast must have been known."""
COVERAGE = (87.0, 93.0)
FINE_DAYS = 3
"""Days of history at full resolution: errors depend on its noise, and are forgotten within a day."""


@dataclass(frozen=True)
class TraceRow:
    trace: str
    known_days: float
    """Days of history before the first forecast."""
    ahead: float
    coverage: float
    interval: float
    skill: dict[str, float]
    regressions: float
    """Percent of the mixture's weight at the end."""
    fit_seconds: float | None
    """Mean CPU seconds of a fit; None: the history was too short."""
    fit_most: float | None
    rss: float
    """MiB of the process at most, with statsmodels and the trace."""
    observe_microseconds: float


@dataclass
class Scored:
    losses: float = 0.0
    count: int = 0
    below: int = 0
    inside: int = 0

    def take(self, actual: float, quantiles: tuple[float, ...], ends: tuple[float, float]) -> None:
        for share, quantile in zip(SHARES, quantiles, strict=True):
            beyond = actual - quantile
            self.losses += share * beyond if beyond > 0 else (share - 1) * beyond
        self.count += 1
        self.below += actual <= quantiles[-1]
        self.inside += ends[0] <= actual <= ends[1]


class Simple:
    """One simple forecast, whose intervals are of its own errors."""

    def __init__(self, ahead: float, floor: float) -> None:
        self._horizon = Horizon(ahead, ("only",), 0.9)
        self._floor = floor

    def next(self, now: float, last: float, expected: float) -> tuple[float, ...]:
        point = math.log(expected + self._floor)
        self._horizon.advance(now, math.log(last + self._floor), (point,), 1.0)
        return tuple(max(math.exp(self._horizon.quantile((point,), s)) - self._floor, 0.0) for s in SHARES)


class Trial:
    """One trace, read from the days before to its end."""

    def __init__(self, recipe: Recipe) -> None:
        workload = recipe.workload(0)
        unit = workload.replica.rate
        self._name, self._floor, self._history = recipe.name, 0.25 * unit, workload.policy_inputs(1).history
        self._forecaster = Forecaster(unit, 0.995)
        self._work = workload.load.per_second(workload.seconds).work
        self._start = workload.start
        self._lead = LEAD if len(self._history.work) * self._history.step < DAY else 0
        self._ours = {ahead: Scored() for ahead in AHEAD}
        self._theirs = {(ahead, name): Scored() for ahead in AHEAD for name in SIMPLE}
        self._beside = {key: Scored() for key in self._theirs}
        """Our loss where the simple forecast is known."""
        self._simple = {key: Simple(key[0], self._floor) for key in self._theirs}
        self._seen: dict[int, float] = {}
        self._average = math.nan
        self._draws = np.random.default_rng(5)
        self._fits: list[float] = []
        self._observed = 0.0
        self._readings = 0

    def rows(self) -> list[TraceRow]:
        history = self._history
        for i, amount in enumerate(history.work.tolist()):
            end = history.start + (i + 1) * history.step
            if end <= history.end - FINE_DAYS * DAY:
                self._read(end, history.step, amount)
            else:
                self._read_apart(end, float(history.arrivals[i]), amount)
            if end % DAY < history.step:
                self._fit()
        self._fit()
        self._play()
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows = []
        for ahead, scored in self._ours.items():
            skill = {
                name: 100 * (1 - self._beside[ahead, name].losses / self._theirs[ahead, name].losses)
                for name in SIMPLE
                if self._theirs[ahead, name].count * STEP >= LEAST_SCORED
            }
            weights = self._forecaster.weights(ahead)
            rows.append(
                TraceRow(
                    self._name,
                    history.step * len(history.work) / DAY,
                    ahead,
                    100 * scored.below / scored.count,
                    100 * scored.inside / scored.count,
                    skill,
                    100 * (weights["fitted"] + weights["quantile"]),
                    statistics.fmean(self._fits) if self._fits else None,
                    max(self._fits, default=None),
                    rss,
                    1e6 * self._observed / max(self._readings, 1),
                )
            )
        return rows

    def _read_apart(self, end: float, arrivals: float, amount: float) -> None:
        """Read a step of the history as it would have been in short readings: requests come independently."""
        parts = max(round(self._history.step / STEP), 1)
        requests = round(arrivals)
        counts = self._draws.multinomial(requests, np.full(parts, 1 / parts))
        for part, count in enumerate(counts.tolist(), 1):
            work = amount * count / requests if requests else 0.0
            self._read(end - STEP * (parts - part), STEP, work)

    def _play(self) -> None:
        waiting: dict[
            float, deque[tuple[float, tuple[float, ...], tuple[float, float], dict[str, tuple[float, ...]]]]
        ]
        waiting = {ahead: deque() for ahead in AHEAD}
        for second in range(STEP, len(self._work) + 1, STEP):
            now = self._start + second
            self._read(now, STEP, float(self._work[second - STEP : second].sum()))
            if second % REFIT < STEP:
                self._fit()
            last = self._forecaster.last
            for ahead, due in waiting.items():
                while due and due[0][0] <= now:
                    _, ours, ends, theirs = due.popleft()
                    if second > self._lead + ahead:
                        self._ours[ahead].take(last, ours, ends)
                        for name, quantiles in theirs.items():
                            self._theirs[ahead, name].take(last, quantiles, ends)
                            self._beside[ahead, name].take(last, ours, ends)
                if second <= self._lead:
                    continue
                ours = tuple(self._forecaster.quantile(ahead, share) for share in SHARES)
                low, high = (self._forecaster.quantile(ahead, share) for share in INTERVAL)
                due.append((now + ahead, ours, (low, high), self._expected(now, ahead)))

    def _read(self, end: float, seconds: float, amount: float) -> None:
        began = time.process_time()
        self._forecaster.observe(end, seconds, amount)
        self._observed += time.process_time() - began
        self._readings += 1
        rate = amount / seconds
        gain = 1 - math.exp(-seconds / SLOW)
        self._average = rate if math.isnan(self._average) else self._average + gain * (rate - self._average)
        self._seen[int(end // 60)] = self._forecaster.last

    def _expected(self, now: float, ahead: float) -> dict[str, tuple[float, ...]]:
        """Return the quantiles of the simple forecasts; a day before is left out where it is not known."""
        last = self._forecaster.last
        before = self._seen.get(int((now + ahead - DAY) // 60))
        points = {"last": last, "average": self._average}
        if before is not None:
            points["day before"] = before
        return {name: self._simple[ahead, name].next(now, last, point) for name, point in points.items()}

    def _fit(self) -> None:
        began = time.process_time()
        fitted = fit(self._forecaster.history.levels)
        if fitted is not None:
            self._fits.append(time.process_time() - began)
        self._forecaster.set_fit(fitted)


def played(recipe: Recipe) -> list[TraceRow]:
    fit([0.1 * (i % 7) for i in range(200)])  # the import of statsmodels is once for all targets
    return Trial(recipe).rows()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, help="folder of recorded traces")
    parser.add_argument("--days", type=float, default=1.0, help="scored days of a trace, at most")
    parser.add_argument("--only", default="", help="traces whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="three hours of each trace")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    days = 1 / 8 if options.quick else options.days
    recipes = [
        recipe
        for recipe in scenarios.recipes(runs.recorded(options.traces), days=days, clients=0)
        if "client" not in recipe.tags and options.only in recipe.name
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        rows = [row for rows_of_service in pool.map(played, recipes) for row in rows_of_service]
    _print(rows)
    covered = [row.coverage for row in rows if row.known_days >= FINE_DAYS]
    fit_most = max((row.fit_most for row in rows if row.fit_most is not None), default=0.0)
    skill = min((row.skill[name] for row in rows for name in SIMPLE[:2] if name in row.skill), default=0.0)
    bars = [
        Bar("% skill against the last value and the average, at least", skill, -2.0, skill >= -2.0),
        Bar("CPU seconds of a fit at most", fit_most, 1.0, fit_most <= 1.0),
    ]
    if covered:
        low, high = COVERAGE
        least, most = min(covered), max(covered)
        bars += [
            Bar("% coverage of the 90 % quantile at least, with three days known", least, low, least >= low),
            Bar("% coverage of the 90 % quantile at most, with three days known", most, high, most <= high),
        ]
    report("forecast", {"scoredDays": days, "rows": [asdict(row) for row in rows]}, bars)


def _print(rows: list[TraceRow]) -> None:
    table = Table(
        "trace",
        "s ahead",
        "% <= q90",
        "% in q5-q95",
        *(f"skill % to {name}" for name in SIMPLE),
        "% regressions",
        "fit s",
        "RSS MiB",
        "µs a reading",
    )
    for row in rows:
        skills = (f"{row.skill[name]:.1f}" if name in row.skill else "-" for name in SIMPLE)
        table.add_row(
            row.trace,
            f"{row.ahead:.0f}",
            f"{row.coverage:.1f}",
            f"{row.interval:.1f}",
            *skills,
            f"{row.regressions:.0f}",
            "-" if row.fit_seconds is None else f"{row.fit_seconds:.3f}",
            f"{row.rss:.0f}",
            f"{row.observe_microseconds:.0f}",
        )
    Console(stderr=True, width=170).print(table)


if __name__ == "__main__":
    main()
