"""Measured surfaces to replay searches on: the values of each spec of a service, from tables."""

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.search.problem import Floats, Integers, Problem
from tuner.specs import scaling

Row = Mapping[str, str]

SLICES = {"mig_gpc", "batch", "procs", "feasible", "rps_total", "latency_ms"}
PROFILES = {"gpu_type", "n_gpus", "num_users", "out_tok_per_s", "ttft_ms_p50", "itl_ms_p50"}
KERNELS = {"valid", "time_ms_mean"}
REPEATS = {"prompt_time", "token_time"}

LATENCY_BOUNDS_MS = (None, 50.0, 100.0, 200.0)
"""Of the services on GPU slices."""
TOKEN_BOUNDS_MS: tuple[tuple[float, float] | None, ...] = (
    None,
    (500.0, 50.0),
    (1000.0, 75.0),
    (2000.0, 100.0),
)
"""Of the language models: time to the first token, and between tokens."""
LEAST_SPECS = 20
"""Fewest specs of a table: of fewer, 5 % is no budget."""


@dataclass(frozen=True)
class MeasuredSurface:
    """A service under constraints, with a measurement of every spec."""

    name: str
    service: str
    group: str
    """`slices`, `profiles` or `kernels`."""
    bounded: int
    """The number of the bounds within the group."""
    problem: Problem
    log_objective: Floats
    """(n,): natural logarithm, maximised; -inf for specs that do not boot."""
    margins: Floats
    """(n, constraints): log(value / bound)."""
    boots: np.ndarray
    """(n,), bool."""

    @property
    def feasible(self) -> np.ndarray:
        """(n,): boots and meets every constraint."""
        return self.boots & (self.margins <= 0).all(axis=1)

    @property
    def smoothed(self) -> Floats:
        """(n,): the objective as the median of a spec and those of its orthogonal neighbours that boot.

        Some optima of measured tables are single points far above their neighbours: more likely an error of
        the measurement than a property of the service. Axes without order have no neighbours.
        """
        medians = self.log_objective.copy()
        row = {tuple(rank): i for i, rank in enumerate(self.problem.ranks.tolist())}
        for i in np.flatnonzero(self.boots):
            near = _neighbours(self.problem.ranks[i].tolist(), self.problem.ordered)
            around = [row.get(tuple(rank)) for rank in near]
            values = [self.log_objective[j] for j in around if j is not None and self.boots[j]]
            medians[i] = float(np.median([*values, self.log_objective[i]]))
        return medians


def _neighbours(rank: Sequence[int], ordered: Sequence[bool]) -> Iterator[list[int]]:
    for axis in range(len(rank)):
        for step in (-1, 1) if ordered[axis] else ():
            near = list(rank)
            near[axis] += step
            yield near


def load(directory: Path) -> list[MeasuredSurface]:
    """Return every service of every table in a directory, under each of its bounds."""
    results: list[MeasuredSurface] = []
    tables = {path: _rows(path) for path in sorted(directory.rglob("*.csv*"))}
    prices = _prices(tables.values())
    for path, rows in tables.items():
        columns = set(rows[0]) if rows else set()
        if columns >= SLICES:
            results += _slices(rows)
        elif columns >= PROFILES:
            results += _profiles(rows, prices)
        elif columns >= KERNELS:
            results.append(_kernel(path.name.split(".")[0], rows))
    return results


def deviations(directory: Path) -> Floats:
    """Return relative standard deviations of repeated measurements, those of the time to the first token.

    Whole answers vary by their lengths, which is no noise.
    """
    repeats: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for path in sorted(directory.rglob("*.csv*")):
        rows = _rows(path)
        if rows and set(rows[0]) >= REPEATS:
            named = [c for c in rows[0] if not c.endswith(("_time", "_power"))]
            for row in rows:
                repeats[tuple(row[c] for c in named)].append(float(row["prompt_time"]))
    seen = [
        float(np.std(values, ddof=1) / np.mean(values)) for values in repeats.values() if len(values) >= 5
    ]
    return np.array(seen or [0.02])


def _rows(path: Path) -> list[Row]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _prices(tables: Iterable[Sequence[Row]]) -> dict[str, float]:
    prices: dict[str, float] = {}
    for rows in tables:
        if rows and {"GPU", "price"} <= set(rows[0]):
            prices |= {row["GPU"]: float(row["price"]) for row in rows if row["GPU"]}
    return prices


def _by(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[column]].append(row)
    return groups


def _ranks(columns: Sequence[Sequence[float]]) -> Integers:
    ranks = [[sorted(set(column)).index(value) for value in column] for column in columns]
    return np.array(ranks, dtype=np.int64).T


def _slices(rows: Sequence[Row]) -> Iterator[MeasuredSurface]:
    """DNNs on slices of a GPU: requests per second and slice, under a bound of the latency."""
    for service, of_one in _by(rows, "model").items():
        columns = [[float(row[name]) for row in of_one] for name in ("mig_gpc", "batch", "procs")]
        rps = np.array([float(row["rps_total"] or 0) for row in of_one])
        latency = np.array([float(row["latency_ms"] or 0) for row in of_one])
        boots = np.array([row["feasible"] == "1" for row in of_one]) & (rps > 0) & (latency > 0)
        slices = np.array(columns[0])
        at_once = np.log(columns[1]) + np.log(columns[2])
        with np.errstate(divide="ignore"):
            objective = np.where(boots, np.log(rps / slices), -np.inf)
        for number, bound in enumerate(LATENCY_BOUNDS_MS):
            margins = _margins([(latency, bound)] if bound else [], boots)
            problem = Problem(
                coordinates=np.log2(np.array(columns).T),
                ranks=_ranks(columns),
                ordered=(True, True, True),
                resource=(True, False, False),
                log_cost=np.log(slices),
                log_bounds=_log_bounds([bound] if bound else []),
                expected=_expected("throughputPerCost", np.log(slices), at_once),
                expected_margins=_expected_margins(margins, np.log(slices), at_once),
            )
            name = f"{service} latency<={bound:g}ms" if bound else service
            yield MeasuredSurface(name, service, "slices", number, problem, objective, margins, boots)


def _profiles(rows: Sequence[Row], prices: Mapping[str, float]) -> Iterator[MeasuredSurface]:
    """Language models on GPU profiles by load: tokens per cost, under bounds of TTFT and ITL."""
    kinds = sorted({row["gpu_type"] for row in rows})  # of all services, as they learn from each other
    for service, of_one in _by(rows, "model").items():
        priced = [row for row in of_one if f"{row['n_gpus']} x {row['gpu_type']}" in prices]
        if len(priced) < LEAST_SPECS:
            continue
        columns = [[float(kinds.index(row["gpu_type"])) for row in priced]]
        columns += [[float(row[name]) for row in priced] for name in ("n_gpus", "num_users")]
        cost = np.array([prices[f"{row['n_gpus']} x {row['gpu_type']}"] for row in priced])
        users = np.log(columns[2])
        tokens = np.array([float(row["out_tok_per_s"] or 0) for row in priced])
        ttft, itl = (
            np.array([float(row[name] or 0) for row in priced]) for name in ("ttft_ms_p50", "itl_ms_p50")
        )
        boots = (tokens > 0) & (ttft > 0) & (itl > 0)
        with np.errstate(divide="ignore"):
            objective = np.where(boots, np.log(tokens / cost), -np.inf)
        for number, bound in enumerate(TOKEN_BOUNDS_MS):
            margins = _margins([(ttft, bound[0]), (itl, bound[1])] if bound else [], boots)
            problem = Problem(
                coordinates=np.array([columns[0], np.log2(columns[1]), np.log2(columns[2])]).T,
                ranks=_ranks(columns),
                ordered=(False, True, True),
                resource=(False, True, False),
                log_cost=np.log(cost),
                log_bounds=_log_bounds(bound or []),
                expected=_expected("tokensPerCost", np.log(cost), users),
                expected_margins=_expected_margins(margins, np.log(cost), users),
            )
            name = f"{service} ttft<={bound[0]:g}ms itl<={bound[1]:g}ms" if bound else service
            yield MeasuredSurface(name, service, "profiles", number, problem, objective, margins, boots)


def _expected(metric: str, log_cost: Floats, log_at_once: Floats) -> Floats:
    """Return the expectation of the objective: slices and kinds of GPU are worth their cost."""
    return scaling.log_objective(
        metric, scaling.log_throughput(scaling.GPU * log_cost, log_at_once), log_cost
    )


def _expected_margins(margins: Floats, log_cost: Floats, log_at_once: Floats) -> Floats:
    """Return the expectation of each margin: here the load is part of the spec and determines latency.

    The latency at a fixed concurrency is by Little's law concurrency / throughput.
    """
    latency = log_at_once - scaling.log_throughput(scaling.GPU * log_cost, log_at_once)
    return np.repeat(latency[:, None], margins.shape[1], axis=1)


def _kernel(name: str, rows: Sequence[Row]) -> MeasuredSurface:
    """A kernel's parameters: a discrete space with invalid points; the shortest time wins."""
    axes = [column for column in rows[0] if column != "valid" and not column.startswith(("time_ms", "n_rep"))]
    columns = [[float(row[axis]) for row in rows] for axis in axes]
    time = np.array([float(row["time_ms_mean"] or "nan") for row in rows])
    boots = np.array([row["valid"] == "1" for row in rows]) & np.isfinite(time) & (time > 0)
    natural = [
        [math.log2(value) for value in column] if min(column) > 0 else list(column) for column in columns
    ]
    problem = Problem(
        coordinates=np.array(natural).T,
        ranks=_ranks(columns),
        ordered=(True,) * len(axes),
        resource=(False,) * len(axes),
        log_cost=np.zeros(len(rows)),
    )
    objective = np.where(boots, -np.log(np.where(boots, time, 1.0)), -np.inf)
    return MeasuredSurface(name, name, "kernels", 0, problem, objective, _margins([], boots), boots)


def _log_bounds(bounds: Iterable[float]) -> tuple[float, ...]:
    return tuple(math.log(bound) for bound in bounds)


def _margins(bounded: Sequence[tuple[Floats, float]], boots: np.ndarray) -> Floats:
    if not bounded:
        return np.empty((len(boots), 0))
    margins = [
        np.where(boots, np.log(np.where(boots, values, 1.0) / bound), np.inf) for values, bound in bounded
    ]
    return np.array(margins).T
