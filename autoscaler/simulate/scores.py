"""Scores of a run after its lead: waits, cost, cold starts and changes. Pure."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulate.oracle import Oracle
from autoscaler.simulate.run import Run
from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.workload import Workload

WINDOW = 60
"""Seconds of a window, which is violated or not."""
WINDOW_SHARE = 0.01
"""Share of a window's requests that may wait too long: the objective is the 99th percentile."""
REVERSAL_SECONDS = 600.0
"""A change of direction counts as a reversal within this time of the last change."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one run, or of one schedule, after the unscored lead."""

    violations: float
    """Percent of requests that waited longer than `Workload.wait`, abandoned requests included."""
    windows: float
    """Percent of the minutes with requests in which more than 1 % of requests waited too long."""
    p50: float
    """Seconds of wait: the median."""
    p99: float
    """Seconds of wait: the 99th percentile."""
    p999: float
    """Seconds of wait: the 99.9th percentile."""
    replica_hours: float
    """Paid replica-hours: of starting, ready and draining replicas."""
    over_oracle: float
    """Ratio of replica-hours to those of `Oracle.alive`."""
    over_least: float
    """Ratio of replica-hours to those of `Oracle.least`."""
    over_work: float
    """Ratio of replica-hours to those of replicas that are always fully used."""
    cold: float
    """Percent of requests that arrived without a ready replica."""
    cold_seconds: float
    """Mean seconds of wait of the requests that arrived without a ready replica; 0 without such requests."""
    actions: float
    """Changes of the desired count per hour."""
    reversals: float
    """Changes of direction within ten minutes of the last change, per hour."""
    overshoot: float
    """Ratio of the highest paid count to that of the oracle."""
    requests: float
    """The number of scored requests."""


def scores(workload: Workload, run: Run, oracle: Oracle) -> Scores:
    """Return the scores of a run, without its lead."""
    waits = run.waits
    scored = waits.times >= workload.lead
    times, wait, weight, cold = (
        values[scored] for values in (waits.times, waits.seconds, waits.weights, waits.cold)
    )
    total = max(float(weight.sum()), 1e-9)
    late = wait > workload.wait + 1e-6
    p50, p99, p999 = _quantiles(wait, weight, (0.5, 0.99, 0.999))
    hours = (workload.seconds - workload.lead) / 3600
    alive = oracle.alive[workload.lead :]
    at_zero = float((weight * cold).sum())
    actions = [action for action in run.actions if action[0] >= workload.lead]
    return Scores(
        violations=100 * float(weight[late].sum()) / total,
        windows=100 * _windows(times, weight, late),
        p50=p50,
        p99=p99,
        p999=p999,
        replica_hours=run.replica_seconds / 3600,
        over_oracle=run.replica_seconds / max(float(alive.sum()), 1e-9),
        over_least=run.replica_seconds / max(float(oracle.least[workload.lead :].sum()), 1e-9),
        over_work=run.replica_seconds / max(workload.pure_work(), 1e-9),
        cold=100 * at_zero / total,
        cold_seconds=float((wait * weight * cold).sum()) / at_zero if at_zero else 0.0,
        actions=len(actions) / hours,
        reversals=_reversals(actions) / hours,
        overshoot=run.most_alive / max(float(alive.max(initial=0)), 1.0),
        requests=total,
    )


def oracle_scores(workload: Workload, oracle: Oracle) -> dict[str, Scores]:
    """Return the scores of the schedules with perfect knowledge, by name; in none of them does a request wait
    too long.
    """
    paid = {
        "oracle": oracle.alive,
        "least": oracle.least,
        "static peak": np.full(workload.seconds, oracle.need[workload.lead :].max()),
    }
    return {
        name: _of_schedule(workload, oracle, float(alive[workload.lead :].sum()))
        for name, alive in paid.items()
    }


def _of_schedule(workload: Workload, oracle: Oracle, seconds: float) -> Scores:
    """Return the scores of a schedule that pays `seconds` replica-seconds; waits and changes count as 0, the
    overshoot as 1.
    """
    flow = workload.load.per_second(workload.seconds)
    return Scores(
        violations=0,
        windows=0,
        p50=0,
        p99=0,
        p999=0,
        replica_hours=seconds / 3600,
        over_oracle=seconds / max(float(oracle.alive[workload.lead :].sum()), 1e-9),
        over_least=seconds / max(float(oracle.least[workload.lead :].sum()), 1e-9),
        over_work=seconds / max(workload.pure_work(), 1e-9),
        cold=0,
        cold_seconds=0,
        actions=0,
        reversals=0,
        overshoot=1,
        requests=float(flow.arrivals[workload.lead :].sum()),
    )


def _quantiles(values: Floats, weights: Floats, shares: tuple[float, ...]) -> list[float]:
    """Return the quantiles of weighted values, one for each of the shares (0 to 1); zeros without values."""
    if not len(values):
        return [0.0] * len(shares)
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    at = np.searchsorted(total, np.asarray(shares) * total[-1], side="left")
    return [float(values[order[min(index, len(order) - 1)]]) for index in at]


def _windows(times: Floats, weights: Floats, late: NDArray[np.bool_]) -> float:
    """Return the share of violated windows among the windows with requests."""
    if not len(times):
        return 0.0
    window = (times // WINDOW).astype(np.int64)
    total = np.bincount(window, weights=weights)
    total_late = np.bincount(window, weights=weights * late)
    return float((total_late > WINDOW_SHARE * total).sum() / (total > 0).sum())


def _reversals(actions: list[tuple[float, int]]) -> int:
    """Return the number of reversals among actions: pairs of time in seconds and change of the count."""
    return sum(
        (change > 0) != (before > 0) and time - earlier <= REVERSAL_SECONDS
        for (earlier, before), (time, change) in pairwise(actions)
    )
