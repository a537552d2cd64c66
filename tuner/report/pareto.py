"""From the evidence to Pareto fronts: cost per hour against throughput, and against the latency that the experiment is about."""

from collections.abc import Sequence

from serving.resources.experiment import Constraint
from serving.resources.trial import Estimate
from tuner.constraints import measured_value
from tuner.report.evidence import Evidence, Key, Row
from tuner.report.front import efficient
from tuner.report.schema import Front, Point


def fronts(evidence: Evidence) -> list[Front]:
    """Return the fronts of which anything was measured; each spec stands there as its last trial saw it."""
    rows = _last(evidence)
    asked = next((c for c in evidence.spec.constraints if c.metric != "errorRate"), None)
    limit = asked or Constraint(metric="latency", percentile=evidence.spec.objective.percentile, at_most="0s")
    assert limit.metric != "errorRate"
    done = [(row, row.status.result.throughput) for row in rows if row.status.result]
    waited = [
        (row, seen)
        for row in rows
        if row.status.result
        and (seen := measured_value(row.status.result, limit.metric, limit.percentile)) is not None
    ]
    found = [
        Front(
            measure="throughput", percentile=limit.percentile, better="more", points=_points(done, sign=-1)
        ),
        Front(
            measure=limit.metric, percentile=limit.percentile, better="less", points=_points(waited, sign=1)
        ),
    ]
    return [front for front in found if front.points]


def _last(evidence: Evidence) -> list[Row]:
    """Return the last trial of each spec with a result and a cost: a complete one where there is one."""
    found: dict[Key, Row] = {}
    for row in evidence.rows:
        if (
            row.status.result is not None
            and row.spec.cost_per_hour > 0
            and (row.complete or row.key not in found)
        ):
            found[row.key] = row
    return list(found.values())


def _points(rows: Sequence[tuple[Row, Estimate]], sign: int) -> list[Point]:
    """Return the points; only specs that may meet the constraints, and were measured to the end, can be on the front."""
    able = [i for i, (row, _) in enumerate(rows) if row.complete and row.meets != "No"]
    best = efficient([(rows[i][0].spec.cost_per_hour, sign * rows[i][1].value) for i in able])
    front = {i for i, is_best in zip(able, best, strict=True) if is_best}
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
