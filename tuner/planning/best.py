"""The status entry of the best spec, which the search chooses, and the throughput that beats it."""

import math

from serving.objects import Object
from serving.resources.tuning.experiment_status import Alternative, Recommendation
from tuner import intervals
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision import Decision
from tuner.specs.rendering import Rendering
from tuner.trial_record import TrialRecord


def recommendation(snapshot: ExperimentSnapshot, decision: Decision) -> Recommendation | None:
    """Return the status entry of the decision's best spec, without its message; None without a result."""
    index = decision.best
    fields = None if index is None else _measured_spec(snapshot, decision, index)
    if index is None or fields is None:
        return None
    last, baseline = measured(snapshot, index)[-1], snapshot.baseline
    return Recommendation(
        **fields,
        probability=decision.probability,
        cost_per_hour=last.spec.cost_per_hour,
        current_cost_per_hour=baseline.spec.cost_per_hour if baseline is not None else 0,
        alternative=_alternative(snapshot, decision),
    )


def _alternative(snapshot: ExperimentSnapshot, decision: Decision) -> Alternative | None:
    other = decision.alternative
    fields = None if other is None else _measured_spec(snapshot, decision, other.index)
    if other is None or fields is None:
        return None
    return Alternative(**fields, probability=other.probability, rule=other.rule)


def _measured_spec(snapshot: ExperimentSnapshot, decision: Decision, index: int) -> Object | None:
    """Return the fields of a spec that both entries have; None without a result."""
    trials = measured(snapshot, index)
    objectives = [trial.objective for trial in trials if trial.objective is not None]
    if not objectives:
        return None
    pooled, last = intervals.pooled(objectives, decision.repeatability), trials[-1]
    return {
        "trial": last.name,
        "settings": list(last.spec.settings),
        "objective": pooled.value,
        "low": pooled.low,
        "high": pooled.high,
    }


def measured(snapshot: ExperimentSnapshot, index: int) -> list[TrialRecord]:
    """Return the completely measured trials of a spec, or those stopped early if there are none."""
    trials = [trial for trial in snapshot.trials if trial.index == index and trial.over and not trial.stale]
    with_result = [trial for trial in trials if trial.status.result is not None]
    return [trial for trial in with_result if trial.status.reason == "Measured"] or with_result


def to_beat(snapshot: ExperimentSnapshot, decision: Decision, rendered: Rendering) -> float | None:
    """Return the throughput with which this spec beats the best; None if throughput does not decide.

    It does not while the best spec may break a constraint: any safe spec comes before that one. The best spec
    counts with the lower end of its interval, so that equal specs are measured completely.
    """
    if decision.best is None or not decision.is_safe:
        return None
    trials = measured(snapshot, decision.best)
    results = [trial.status.result.throughput for trial in trials if trial.status.result is not None]
    if not results:
        return None
    objective, throughput = (
        snapshot.experiment_spec.objective,
        intervals.pooled(results, decision.repeatability).low,
    )
    cost = trials[-1].spec.cost_per_hour
    match objective.objective_metric_name:
        case "throughput":
            return throughput
        case "throughputPerCost" if cost > 0:
            return throughput * rendered.cost_per_hour / cost
        case "costAtRate" if cost > 0 and throughput > 0 and objective.rate is not None:
            rate = float(objective.rate)
            replicas = math.floor(math.ceil(rate / throughput) * cost / rendered.cost_per_hour)
            # If one replica is dearer already, no throughput compensates for it, but its latency is of use.
            return rate / replicas if replicas else None
        case _:
            return None
