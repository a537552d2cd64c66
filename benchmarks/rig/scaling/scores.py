"""Scores of scaling policies: figures by service and start-up law, cost against violations, and the bars."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from autoscaler.simulate.scores import Scores
from rig.harness import Bar, Interval, interval
from rig.scaling.policies import HPA, KPA_RETENTION, OURS
from rig.scaling.runs import SPARSE_STARTUP, SWEPT_STARTUPS, Row

ORACLES = ("oracle", "least", "static peak")
"""They know the load in advance: no bar compares with them, except the cost of the peak."""

HALF = 0.5
SMOOTH_VIOLATIONS, SMOOTH_COST = 0.1, 1.08
COLD = 0.3
OF_PEAK, OF_HPA = 0.5, 0.8
ACTIONS, REVERSALS, OVERSHOOT = 6.0, 1.0, 1.3
MILLISECONDS = 5.0
STEP = "step x10"

SAME_VIOLATIONS = 0.001
"""Percentage points up to which neither of two policies is the better one."""
SAME_COST = 0.001
"""The same, for the relative difference of replica-hours."""

NONE = 0.01
"""Mean percent of violations that counts as negligible: no policy must halve less."""
SPARED = 0.4
"""Share of the static peak's replica-hours: where the oracle needs more, no policy can halve them."""

Cell = tuple[str, str]
"""A service and a start-up law."""


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return figures by service, start-up law and policy: intervals of the compared two, else means."""
    places: dict[str, Any] = {}
    for (service, startup), policies in cells(rows).items():
        place = places.setdefault(service, {"tags": sorted(next(iter(policies.values()))[0].tags)})
        place[startup] = {policy: _figures(rows_of_policy) for policy, rows_of_policy in policies.items()}
    return places


def means(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means over services, by start-up law and policy."""
    scores_of: dict[str, Any] = {}
    for row in rows:
        scores_of.setdefault(row.startup, {}).setdefault(row.policy, []).append(row.scores)
    return {
        startup: {
            policy: {
                "violations": _rounded(scores.violations for scores in chosen),
                "overOracle": _rounded(scores.over_oracle for scores in chosen),
                "cold": _rounded(scores.cold for scores in chosen),
                "actions": _rounded(scores.actions for scores in chosen),
                "reversals": _rounded(scores.reversals for scores in chosen),
            }
            for policy, chosen in policies.items()
        }
        for startup, policies in scores_of.items()
    }


def cells(rows: Iterable[Row]) -> dict[Cell, dict[str, list[Row]]]:
    """Return the rows by service and start-up law, and by policy within."""
    rows_of: dict[Cell, dict[str, list[Row]]] = {}
    for row in rows:
        rows_of.setdefault((row.service, row.startup), {}).setdefault(row.policy, []).append(row)
    return rows_of


def bars(rows: Sequence[Row]) -> tuple[dict[str, Any], list[Bar]]:
    """Return the figures of the bars, and the bars; none without a run of ours."""
    if not any(row.policy == OURS for row in rows):
        return {}, []
    by_cell = cells(rows)
    beaten = dominated(by_cell)
    ratios = against_front(rows)
    results = [
        Bar("service and start-up pairs where a baseline is better in both", len(beaten), 0, not beaten)
    ]
    if ratios:
        worst = max(ratios.values())
        results.append(
            Bar("violations over those of a baseline on the front, at its cost", worst, HALF, worst <= HALF)
        )
    results += [*_smooth(by_cell), *_sparse(rows), *_savings(by_cell), *_calm(by_cell, rows)]
    return {"dominated": beaten, "violationsAtCostOf": ratios}, results


def dominated(by_cell: Mapping[Cell, Mapping[str, Sequence[Row]]]) -> list[str]:
    """Return where a baseline has fewer violations and fewer replica-hours, by the worse ends."""
    pairs = []
    for (service, startup), policies in by_cell.items():
        if OURS not in policies:
            continue
        ours, cost = _worse(policies[OURS], "violations"), _worse(policies[OURS], "over_oracle")
        pairs += [
            f"{service}, {startup} s: {policy}"
            for policy, candidates in policies.items()
            if policy not in ORACLES
            and not policy.startswith(OURS)
            and _worse(candidates, "violations") < ours - SAME_VIOLATIONS
            and _worse(candidates, "over_oracle") < cost * (1 - SAME_COST)
        ]
    return pairs


def against_front(rows: Sequence[Row]) -> dict[str, float]:
    """Return, for each baseline that no other beats in both means, our violations at its cost over its own.

    The means of cost and violations of ours at all risks are a line, straight between its points and level
    beyond its last: ours spends no more than at its least risk. A baseline that is cheaper than ours at its
    highest risk is not compared.
    """
    chosen = [row for row in rows if row.startup in SWEPT_STARTUPS and "client" not in row.tags]
    points = {
        policy: (_mean(chosen, policy, "over_oracle"), _mean(chosen, policy, "violations"))
        for policy in dict.fromkeys(row.policy for row in chosen)
    }
    line = _front(point for policy, point in points.items() if policy.startswith(OURS))
    others = {
        policy: point
        for policy, point in points.items()
        if policy not in ORACLES and not policy.startswith(OURS)
    }
    front = _front(others.values())
    return {
        policy: round(_at(line, point[0]) / max(point[1], NONE), 4)
        for policy, point in others.items()
        if line and point in front and point[0] >= line[0][0]
    }


def _smooth(by_cell: Mapping[Cell, Mapping[str, Sequence[Row]]]) -> list[Bar]:
    results = []
    for (service, startup), policies in by_cell.items():
        if OURS in policies and "smooth" in policies[OURS][0].tags:
            late, cost = _worse(policies[OURS], "violations"), _worse(policies[OURS], "over_oracle")
            results.append(
                Bar(
                    f"{service}, {startup} s: % of violations",
                    late,
                    SMOOTH_VIOLATIONS,
                    late <= SMOOTH_VIOLATIONS,
                )
            )
            results.append(
                Bar(
                    f"{service}, {startup} s: replica-hours over perfect knowledge",
                    cost,
                    SMOOTH_COST,
                    cost <= SMOOTH_COST,
                )
            )
    return results


def _sparse(rows: Sequence[Row]) -> list[Bar]:
    """Return the bars of the sums over sparse clients, by seed, against Knative with a long retention."""
    chosen = [row for row in rows if "client" in row.tags and row.startup == SPARSE_STARTUP]
    if not any(row.policy == KPA_RETENTION for row in chosen):
        return []
    seeds = sorted({row.seed for row in chosen})

    def total(policy: str, seed: int, value: Callable[[Scores], float]) -> float:
        return sum(value(row.scores) for row in chosen if row.policy == policy and row.seed == seed)

    cold = [
        total(OURS, seed, lambda scores: scores.cold * scores.requests)
        / total(OURS, seed, lambda scores: scores.requests)
        for seed in seeds
    ]
    hours = [
        total(OURS, seed, lambda scores: scores.replica_hours)
        / total(KPA_RETENTION, seed, lambda scores: scores.replica_hours)
        for seed in seeds
    ]
    worst_cold, worst_hours = interval(cold).high, interval(hours).high
    return [
        Bar("sparse clients: % of requests that meet a cold start", worst_cold, COLD, worst_cold <= COLD),
        Bar(
            f"sparse clients: replica-hours over those of {KPA_RETENTION}", worst_hours, 1.0, worst_hours < 1
        ),
    ]


def _savings(by_cell: Mapping[Cell, Mapping[str, Sequence[Row]]]) -> list[Bar]:
    of_peak, of_hpa, late = [], [], 0
    for (_, startup), policies in by_cell.items():
        if OURS not in policies:
            continue
        ours = _worse(policies[OURS], "replica_hours")
        at_peak = _worse(policies["static peak"], "replica_hours")
        if _worse(policies["oracle"], "replica_hours") <= SPARED * at_peak:
            of_peak.append(ours / at_peak)
        if HPA in policies and (not startup.isdigit() or int(startup) >= 30):
            of_hpa.append(ours / _worse(policies[HPA], "replica_hours"))
            late += (
                _worse(policies[OURS], "violations") > _worse(policies[HPA], "violations") + SAME_VIOLATIONS
            )
    results = []
    if of_peak:
        worst = max(of_peak)
        results.append(
            Bar("replica-hours over the static peak's, the worst pair", worst, OF_PEAK, worst <= OF_PEAK)
        )
    if of_hpa:
        results.append(
            Bar("replica-hours over HPA's, the worst pair", max(of_hpa), OF_HPA, max(of_hpa) <= OF_HPA)
        )
        results.append(Bar("pairs with more violations than HPA", late, 0, late == 0))
    return results


def _calm(by_cell: Mapping[Cell, Mapping[str, Sequence[Row]]], rows: Sequence[Row]) -> list[Bar]:
    ours = [row for row in rows if row.policy == OURS]
    actions, reversals = (
        statistics.median(getattr(row.scores, name) for row in ours) for name in ("actions", "reversals")
    )
    slow = max(row.milliseconds for row in ours)
    steps = [
        _worse(policies[OURS], "overshoot")
        for (service, _), policies in by_cell.items()
        if service == STEP and OURS in policies
    ]
    results = [
        Bar("scale actions an hour, median", actions, ACTIONS, actions <= ACTIONS),
        Bar("reversals an hour, median", reversals, REVERSALS, reversals <= REVERSALS),
        Bar("milliseconds of a decision, the worst run's mean", slow, MILLISECONDS, slow < MILLISECONDS),
    ]
    if steps:
        results.append(
            Bar(
                "highest count over perfect knowledge, step x10",
                max(steps),
                OVERSHOOT,
                max(steps) <= OVERSHOOT,
            )
        )
    return results


def _figures(rows: Sequence[Row]) -> dict[str, Any]:
    def mean(name: str) -> float:
        return _rounded(getattr(row.scores, name) for row in rows)

    return {
        "violations": _of(rows, "violations"),
        "overOracle": _of(rows, "over_oracle"),
        "replicaHours": mean("replica_hours"),
        "overLeast": mean("over_least"),
        "overWork": mean("over_work"),
        "windows": mean("windows"),
        "p50": mean("p50"),
        "p99": mean("p99"),
        "p999": mean("p999"),
        "cold": mean("cold"),
        "coldSeconds": mean("cold_seconds"),
        "actions": mean("actions"),
        "reversals": mean("reversals"),
        "overshoot": mean("overshoot"),
        "msPerDecision": _rounded(row.milliseconds for row in rows),
        "slowestMs": round(max(row.slowest for row in rows), 2),
    }


def _of(rows: Sequence[Row], name: str) -> Interval:
    return interval([getattr(row.scores, name) for row in rows], statistics.fmean)


def _worse(rows: Sequence[Row], name: str) -> float:
    return _of(rows, name).high


def _mean(rows: Sequence[Row], policy: str, name: str) -> float:
    return statistics.fmean(getattr(row.scores, name) for row in rows if row.policy == policy)


def _rounded(values: Iterable[float]) -> float:
    return round(statistics.fmean(values), 4)


def _front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats in both, the cheapest first."""
    kept: list[tuple[float, float]] = []
    for cost, late in sorted(points):
        if not kept or late < kept[-1][1]:
            kept.append((cost, late))
    return kept


def _at(line: Sequence[tuple[float, float]], cost: float) -> float:
    """Return the violations of a line at a cost."""
    for (low, late), (high, fewer) in pairwise(line):
        if cost <= high:
            return late + (fewer - late) * (cost - low) / (high - low)
    return line[-1][1]
