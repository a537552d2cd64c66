"""The status entry of the best spec, which the search chooses, and the throughput that beats it."""

import math

from serving.resources.experiment import Recommendation
from tuner import intervals
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision import Decision
from tuner.specs.rendering import Rendering
from tuner.trial_record import TrialRecord


def recommendation(snapshot: ExperimentSnapshot, index: int, repeatability: float) -> Recommendation | None:
    """Return a spec's entry in the status, without its message; None without a result.

    Args:
        snapshot: the experiment.
        index: the row of the spec.
        repeatability: of the search's decision.
    """
    trials = measured(snapshot, index)
    objectives = [trial.objective for trial in trials if trial.objective is not None]
    if not objectives:
        return None
    pooled, last, baseline = intervals.pooled(objectives, repeatability), trials[-1], snapshot.baseline
    return Recommendation(
        trial=last.name,
        settings=list(last.spec.settings),
        objective=pooled.value,
        low=pooled.low,
        high=pooled.high,
        cost_per_hour=last.spec.cost_per_hour,
        current_cost_per_hour=baseline.spec.cost_per_hour if baseline is not None else 0,
    )


def measured(snapshot: ExperimentSnapshot, index: int) -> list[TrialRecord]:
    """Return the completely measured trials of a spec, or those stopped early if there are none."""
    trials = [trial for trial in snapshot.trials if trial.index == index and trial.over and not trial.stale]
    with_result = [trial for trial in trials if trial.status.result is not None]
    return [trial for trial in with_result if trial.status.reason == "Measured"] or with_result


def to_beat(snapshot: ExperimentSnapshot, decision: Decision, rendered: Rendering) -> float | None:
    """Return the throughput with which this spec beats the best; None if throughput does not decide.

    The best spec counts with the lower end of its interval, so that equal specs are measured completely.
    """
    trials = [] if decision.best is None else measured(snapshot, decision.best)
    results = [trial.status.result.throughput for trial in trials if trial.status.result is not None]
    if not results:
        return None
    objective, throughput = snapshot.spec.objective, intervals.pooled(results, decision.repeatability).low
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
