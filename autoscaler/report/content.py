"""Builds the report of a simulation from its outcomes. Pure."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from autoscaler.report.schema import (
    PERFECT_KNOWLEDGE,
    Moment,
    PolicyRow,
    SimulatedService,
    SimulationReport,
    Timeline,
)
from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import OURS, Outcome
from autoscaler.simulate.oracle import Oracle
from autoscaler.simulate.scores import Scores, oracle_scores
from autoscaler.simulate.workloads.service import Service
from autoscaler.simulate.workloads.workload import Workload
from serving import clock


def of(
    simulated: Service,
    outcomes: Sequence[Outcome],
    *,
    oracle: Oracle,
    startup: str,
    limit: int,
    seed: int,
    now: dt.datetime,
    version: str,
) -> SimulationReport:
    """Return the report.

    Args:
        simulated: the simulated service.
        outcomes: of all policies; the report explains the first one of our policy.
        oracle: the schedule with perfect knowledge of the load.
        startup: the start-up time: seconds as the user wrote them, or the name `fleet` of a law.
        limit: most replicas.
        seed: seed of the simulation.
        now: the time of the report.
        version: the version of the program.
    """
    workload = simulated.workload
    main = next((outcome for outcome in outcomes if outcome.policy == OURS), outcomes[0])
    rows = [_row(PERFECT_KNOWLEDGE, None, oracle_scores(workload, oracle)["oracle"], ours=False)]
    rows += [
        _row(outcome.name, outcome.risk, outcome.scores, ours=outcome.policy == OURS) for outcome in outcomes
    ]
    ordered = [main, *(outcome for outcome in outcomes if outcome is not main)]
    return SimulationReport(
        name=workload.name,
        generated_at=clock.rfc3339(now),
        version=version,
        service=_service(workload, simulated.unit, startup, limit, seed),
        assumed=simulated.assumed,
        main=main.name,
        rows=_with_pareto_front(rows),
        step=comparison.width(workload),
        moments=_moments(workload, oracle),
        tracks=tuple(Timeline(outcome.name, outcome.columns) for outcome in ordered),
        changes=main.changes,
        reasons=dict(sorted(main.reasons.items(), key=lambda pair: -pair[1])),
    )


def _service(workload: Workload, unit: str, startup: str, limit: int, seed: int) -> SimulatedService:
    replica = workload.replica
    return SimulatedService(
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


def _row(name: str, risk: float | None, scores: Scores, *, ours: bool) -> PolicyRow:
    return PolicyRow(
        name=name,
        risk=risk,
        ours=ours,
        violations=scores.violations,
        windows=scores.windows,
        p99=scores.p99,
        replica_hours=scores.replica_hours,
        over_oracle=scores.over_oracle,
        cold=scores.cold,
        actions=scores.actions,
        reversals=scores.reversals,
        is_pareto_optimal=False,
    )


def _with_pareto_front(rows: Sequence[PolicyRow]) -> tuple[PolicyRow, ...]:
    """Return the rows with `PolicyRow.is_pareto_optimal` set.

    Perfect knowledge is no policy, and neither marked nor compared.
    """
    return tuple(replace(row, is_pareto_optimal=_is_pareto_optimal(row, rows)) for row in rows)


def _is_pareto_optimal(row: PolicyRow, rows: Sequence[PolicyRow]) -> bool:
    if row.name == PERFECT_KNOWLEDGE:
        return False
    scores = (row.violations, row.replica_hours)
    others = [(rival.violations, rival.replica_hours) for rival in rows if rival.name != PERFECT_KNOWLEDGE]
    return not any(rival[0] <= scores[0] and rival[1] <= scores[1] and rival != scores for rival in others)


def _moments(workload: Workload, oracle: Oracle) -> tuple[Moment, ...]:
    step = comparison.width(workload)
    columns = zip(
        comparison.load_of(workload).tolist(),
        comparison.requests_of(workload).tolist(),
        comparison.need_of(workload, oracle).tolist(),
        strict=True,
    )
    return tuple(
        Moment(workload.start + index * step, rate, requests, int(needed))
        for index, (rate, requests, needed) in enumerate(columns)
    )
