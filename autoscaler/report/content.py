"""Makes the report of a simulation. Pure."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from autoscaler.report.shape import KNOWING, Moment, Report, Row, Service, Track
from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import OURS, Outcome
from autoscaler.simulate.oracle import Oracle
from autoscaler.simulate.scores import Scores, knowing
from autoscaler.simulate.workloads.service import Service as Simulated
from autoscaler.simulate.workloads.workload import Workload


def of(
    simulated: Simulated,
    outcomes: Sequence[Outcome],
    *,
    known: Oracle,
    startup: str,
    limit: int,
    seed: int,
    now: dt.datetime,
    version: str,
) -> Report:
    """Return the report.

    Args:
        simulated: the service.
        outcomes: of each policy; the first of ours is the one that is explained.
        known: what perfect knowledge would do.
        startup: the name of the law of start-up times.
        limit: replicas at most.
        seed: of the run.
        now: when the report is made.
        version: of the program.
    """
    workload = simulated.workload
    main = next((outcome for outcome in outcomes if outcome.policy == OURS), outcomes[0])
    rows = [_row(KNOWING, None, knowing(workload, known)["oracle"], ours=False)]
    rows += [
        _row(outcome.name, outcome.risk, outcome.scores, ours=outcome.policy == OURS) for outcome in outcomes
    ]
    ordered = [main, *(outcome for outcome in outcomes if outcome is not main)]
    return Report(
        name=workload.name,
        generated_at=now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        version=version,
        service=_service(workload, simulated.unit, startup, limit, seed),
        assumed=simulated.assumed,
        main=main.name,
        rows=_fronted(rows),
        step=comparison.width(workload),
        moments=_moments(workload, known),
        tracks=tuple(Track(outcome.name, outcome.columns) for outcome in ordered),
        changes=main.changes,
        reasons=dict(sorted(main.reasons.items(), key=lambda pair: -pair[1])),
    )


def _service(workload: Workload, unit: str, startup: str, limit: int, seed: int) -> Service:
    replica = workload.replica
    return Service(
        start=workload.start,
        seconds=workload.seconds,
        lead=workload.lead,
        history_seconds=workload.history.step * len(workload.history.arrivals),
        unit=unit,
        replica_rate=replica.rate,
        concurrency=replica.concurrency,
        service_seconds=replica.service_seconds,
        wait=workload.wait,
        min_replicas=workload.min_replicas,
        max_replicas=limit,
        startup=startup,
        seed=seed,
    )


def _row(name: str, risk: float | None, scored: Scores, *, ours: bool) -> Row:
    return Row(
        name=name,
        risk=risk,
        ours=ours,
        violations=scored.violations,
        windows=scored.windows,
        p99=scored.p99,
        replica_hours=scored.replica_hours,
        over_oracle=scored.over_oracle,
        cold=scored.cold,
        actions=scored.actions,
        flips=scored.flips,
        front=False,
    )


def _fronted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows, with the mark of those that no other policy beats; the oracle is no policy."""
    return tuple(replace(row, front=_is_on_front(row, rows)) for row in rows)


def _is_on_front(row: Row, rows: Sequence[Row]) -> bool:
    if row.name == KNOWING:
        return False
    mine = (row.violations, row.replica_hours)
    for other in rows:
        theirs = (other.violations, other.replica_hours)
        if other.name != KNOWING and theirs[0] <= mine[0] and theirs[1] <= mine[1] and theirs != mine:
            return False
    return True


def _moments(workload: Workload, known: Oracle) -> tuple[Moment, ...]:
    step = comparison.width(workload)
    columns = zip(
        comparison.load_of(workload).tolist(),
        comparison.requests_of(workload).tolist(),
        comparison.need_of(workload, known).tolist(),
        strict=True,
    )
    return tuple(
        Moment(workload.start + index * step, rate, requests, int(needed))
        for index, (rate, requests, needed) in enumerate(columns)
    )
