"""The best spec so far as a status shows it, and what it takes to beat it. Which one is the best, the search says."""

import math

from serving.resources.experiment import Recommendation
from tuner import intervals
from tuner.objective import objective_value
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision import Decision
from tuner.specs.rendering import Rendering
from tuner.trial_record import TrialRecord


def recommendation(world: ExperimentSnapshot, index: int, repeatability: float) -> Recommendation | None:
    """Return what is said of a spec, without words: all its whole measurements together, as the report has them.

    One that was only stopped early has these; None where it has no result at all. `repeatability` is the decision's.
    """
    trials = measured(world, index)
    found = [
        value
        for trial in trials
        if trial.status.result is not None
        and (
            value := objective_value(
                world.spec.objective, trial.status.result, trial.spec.cost_per_hour, trial.spec.batch
            )
        )
    ]
    if not found:
        return None
    pooled, last, baseline = intervals.pooled(found, repeatability), trials[-1], world.baseline
    return Recommendation(
        trial=last.name,
        settings=list(last.spec.settings),
        objective=pooled.value,
        low=pooled.low,
        high=pooled.high,
        cost_per_hour=last.spec.cost_per_hour,
        current_cost_per_hour=baseline.spec.cost_per_hour if baseline is not None else 0,
    )


def measured(world: ExperimentSnapshot, index: int) -> list[TrialRecord]:
    """Return the trials of a spec that were measured to their end, else those that were stopped early."""
    of_it = [trial for trial in world.trials if trial.index == index and trial.over and not trial.stale]
    ran = [trial for trial in of_it if trial.status.result is not None]
    return [trial for trial in ran if trial.status.reason == "Measured"] or ran


def to_beat(world: ExperimentSnapshot, decision: Decision, rendered: Rendering) -> float | None:
    """Return the requests per second that this spec must do to beat the best; None where throughput does not decide.

    Of the best, the lower end of its interval counts: a spec that may be as good is measured to its end.
    """
    trials = [] if decision.best is None else measured(world, decision.best)
    results = [trial.status.result.throughput for trial in trials if trial.status.result is not None]
    if not results:
        return None
    objective, done = world.spec.objective, intervals.pooled(results, decision.repeatability).low
    cost = trials[-1].spec.cost_per_hour
    match objective.objective_metric_name:
        case "throughput":
            return done
        case "throughputPerCost" if cost > 0:
            return done * rendered.cost_per_hour / cost
        case "costAtRate" if cost > 0 and done > 0 and objective.rate is not None:
            rate = float(objective.rate)
            replicas = math.floor(math.ceil(rate / done) * cost / rendered.cost_per_hour)
            # Where one replica is dearer already nothing can make up for it, but its latency is worth knowing.
            return rate / replicas if replicas else None
        case _:
            return None
