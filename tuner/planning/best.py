"""The status entry of the best spec, which the search chooses, and the throughput that beats it."""

import math

from serving.objects import Object
from serving.resources.tuning.experiment_status import MeasuredAlternative, Recommendation
from tuner import intervals
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search import ranking
from tuner.search.decision_values import Decision
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


def _alternative(snapshot: ExperimentSnapshot, decision: Decision) -> MeasuredAlternative | None:
    other = decision.alternative
    fields = None if other is None else _measured_spec(snapshot, decision, other.index)
    if other is None or fields is None:
        return None
    return MeasuredAlternative(**fields, probability=other.probability, rule=other.rule)


def _measured_spec(snapshot: ExperimentSnapshot, decision: Decision, index: int) -> Object | None:
    """Return the fields that `Recommendation` and `MeasuredAlternative` share, of the spec at `index`.

    None without a measured objective.
    """
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
    """Return the completely measured trials of the spec at `index`, else its trials that were stopped early.

    The trials are sorted by number.
    """
    trials = [
        trial for trial in snapshot.trials if trial.index == index and trial.is_over and not trial.stale
    ]
    with_result = [trial for trial in trials if trial.status.result is not None]
    return [trial for trial in with_result if trial.status.reason == "Measured"] or with_result


def to_beat(snapshot: ExperimentSnapshot, decision: Decision, rendered: Rendering) -> float | None:
    """Return the throughput, in requests per second, with which the spec to measure beats the best spec.

    None if throughput does not decide: the objective does not depend on it, or the best spec may break a
    constraint, in which case any safe spec beats it. The best spec counts with the lower end of its interval,
    so that equal specs are measured completely.

    Args:
        snapshot: the experiment.
        decision: names the best spec.
        rendered: the spec to measure.
    """
    if decision.best is None or not decision.is_safe:
        return None
    trials = measured(snapshot, decision.best)
    results = [trial.status.result.throughput for trial in trials if trial.status.result is not None]
    if not results:
        return None
    objective = snapshot.experiment_spec.objective
    best_throughput = intervals.pooled(results, decision.repeatability).low
    best_cost = trials[-1].spec.cost_per_hour
    match objective.objective_metric_name:
        case "throughput":
            return best_throughput
        case "throughputPerCost" if best_cost > 0:
            return best_throughput * rendered.cost_per_hour / best_cost
        case "costAtRate" if best_cost > 0 and best_throughput > 0 and objective.rate is not None:
            rate = float(objective.rate)
            best_replicas = math.ceil(rate / best_throughput)
            # The most replicas of the spec to measure that cost no more than those of the best spec. The
            # division rounds: three replicas of the same price may be 2.9999999999999996.
            price_ratio = best_cost / rendered.cost_per_hour
            affordable = math.floor(best_replicas * price_ratio * (1 + ranking.SAME_COST))
            # If one replica is dearer already, no throughput compensates for it, but its latency is of use.
            return rate / affordable if affordable else None
        case _:
            return None
