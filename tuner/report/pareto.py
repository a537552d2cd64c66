"""Pareto fronts of the measured specs: cost per hour against throughput and latency."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from serving.resources.tuning.trial import Estimate
from tuner.constraints import measured_value
from tuner.report.evidence import Evidence
from tuner.report.schema import Front, Point
from tuner.trial_record import SpecKey, TrialRecord


class _Measurement(NamedTuple):
    row: TrialRecord
    value: Estimate


def fronts(evidence: Evidence) -> list[Front]:
    """Return the fronts with measurements; each spec has the values of one of its trials.

    The latency is that of the first constraint on a latency, else the objective's percentile.
    """
    rows = _one_of_each_spec(evidence)
    metric: Literal["latency", "ttft", "itl"] = "latency"
    percentile = evidence.spec.objective.percentile
    for constraint in evidence.spec.constraints:
        if constraint.metric != "errorRate":
            metric, percentile = constraint.metric, constraint.percentile
            break
    throughputs = [_Measurement(row, row.status.result.throughput) for row in rows if row.status.result]
    latencies = [
        _Measurement(row, latency)
        for row in rows
        if row.status.result
        and (latency := measured_value(row.status.result, metric, percentile)) is not None
    ]
    both = [
        Front(
            measure="throughput",
            percentile=percentile,
            better="more",
            points=_points(throughputs, less_is_better=False),
        ),
        Front(
            measure=metric,
            percentile=percentile,
            better="less",
            points=_points(latencies, less_is_better=True),
        ),
    ]
    return [front for front in both if front.points]


def _one_of_each_spec(evidence: Evidence) -> list[TrialRecord]:
    """Return the last complete trial of each spec; for a spec without one, its first with result and cost."""
    rows: dict[SpecKey, TrialRecord] = {}
    for row in evidence.rows:
        if (
            row.status.result is not None
            and row.spec.cost_per_hour > 0
            and (row.is_complete or row.key not in rows)
        ):
            rows[row.key] = row
    return list(rows.values())


def _points(measurements: Sequence[_Measurement], *, less_is_better: bool) -> list[Point]:
    """Return the points; only completely measured specs that may meet the constraints can be on the front."""
    sign = 1 if less_is_better else -1
    eligible = [i for i, (row, _) in enumerate(measurements) if row.is_complete and row.meets != "No"]
    optimal = efficient(
        [(measurements[i].row.spec.cost_per_hour, sign * measurements[i].value.value) for i in eligible]
    )
    front = {i for i, is_optimal in zip(eligible, optimal, strict=True) if is_optimal}
    return [
        Point(
            spec=row.index,
            trial=row.name,
            x=row.spec.cost_per_hour,
            y=value,
            meets=row.meets,
            front=i in front,
        )
        for i, (row, value) in enumerate(measurements)
    ]


def efficient(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return whether each point is Pareto optimal; less is better in both measures."""
    optimal = [False] * len(points)
    best = float("inf")
    ascending = sorted(range(len(points)), key=lambda i: points[i])
    # A point is optimal if, among points of its first measure, its second is the least, and less than that of
    # every point with a lower first measure.
    for _, group in groupby(ascending, key=lambda i: points[i][0]):
        members = list(group)
        least = points[members[0]][1]
        if least < best:
            for i in members:
                optimal[i] = points[i][1] == least
            best = least
    return optimal
