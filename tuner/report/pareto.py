"""Pareto fronts of the measured specs: cost per hour against throughput and latency."""

from collections.abc import Sequence
from itertools import groupby

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.trial import Estimate
from tuner.constraints import measured_value
from tuner.report.evidence import Evidence
from tuner.report.schema import Front, Point
from tuner.trial_record import Key, TrialRecord


def fronts(evidence: Evidence) -> list[Front]:
    """Return the fronts with measurements; each spec has the values of its last trial."""
    rows = _last(evidence)
    limited = next((c for c in evidence.spec.constraints if c.metric != "errorRate"), None)
    limit = limited or Constraint(
        metric="latency", percentile=evidence.spec.objective.percentile, at_most="0s"
    )
    assert limit.metric != "errorRate"
    throughputs = [(row, row.status.result.throughput) for row in rows if row.status.result]
    latencies = [
        (row, latency)
        for row in rows
        if row.status.result
        and (latency := measured_value(row.status.result, limit.metric, limit.percentile)) is not None
    ]
    both = [
        Front(
            measure="throughput",
            percentile=limit.percentile,
            better="more",
            points=_points(throughputs, sign=-1),
        ),
        Front(
            measure=limit.metric,
            percentile=limit.percentile,
            better="less",
            points=_points(latencies, sign=1),
        ),
    ]
    return [front for front in both if front.points]


def _last(evidence: Evidence) -> list[TrialRecord]:
    """Return the last trial of each spec with a result and a cost, a complete one if there is any."""
    last: dict[Key, TrialRecord] = {}
    for row in evidence.rows:
        if (
            row.status.result is not None
            and row.spec.cost_per_hour > 0
            and (row.complete or row.key not in last)
        ):
            last[row.key] = row
    return list(last.values())


def _points(rows: Sequence[tuple[TrialRecord, Estimate]], sign: int) -> list[Point]:
    """Return the points; only completely measured specs that may meet the constraints can be on the front."""
    eligible = [i for i, (row, _) in enumerate(rows) if row.complete and row.meets != "No"]
    best = efficient([(rows[i][0].spec.cost_per_hour, sign * rows[i][1].value) for i in eligible])
    front = {i for i, is_best in zip(eligible, best, strict=True) if is_best}
    return [
        Point(
            spec=row.index,
            trial=row.name,
            x=row.spec.cost_per_hour,
            y=value,
            meets=row.meets,
            front=i in front,
        )
        for i, (row, value) in enumerate(rows)
    ]


def efficient(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return whether each point is Pareto optimal; less is better in both measures."""
    optimal = [False] * len(points)
    best = float("inf")
    order = sorted(range(len(points)), key=lambda i: points[i])
    for _, column in groupby(order, key=lambda i: points[i][0]):
        members = list(column)
        least = points[members[0]][1]
        if least < best:
            for i in members:
                optimal[i] = points[i][1] == least
            best = least
    return optimal
