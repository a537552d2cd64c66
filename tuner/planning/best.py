"""The best spec so far, and what it takes to beat it. Objectives of the search are logarithms; people read the natural value."""

import math
from collections import defaultdict
from dataclasses import dataclass

from serving.resources.experiment import Objective, Recommendation
from tuner.planning.world import Known, World
from tuner.rendering import Rendering

Z95 = 1.96
"""Standard deviations to either end of a 95 % interval."""


@dataclass(frozen=True)
class Best:
    """A spec that was seen to run and to meet the constraints."""

    trial: Known
    """That measured it last."""
    log_objective: float
    deviation: float
    """Standard error of `log_objective`."""


def so_far(world: World) -> Best | None:
    """Return the spec whose measurements are the best on average, of those that met every constraint each time."""
    measured: dict[int, list[Known]] = defaultdict(list)
    for trial in world.trials:
        if trial.index is not None and trial.observation is not None:
            measured[trial.index].append(trial)
    candidates = [found for trials in measured.values() if (found := _of_spec(trials)) is not None]
    return max(candidates, key=lambda best: best.log_objective, default=None)


def _of_spec(trials: list[Known]) -> Best | None:
    seen = [trial.observation for trial in trials if trial.observation is not None]
    values = [o.log_objective for o in seen if o.log_objective is not None and not o.censored]
    if not values or not all(o.feasible for o in seen if not o.censored):
        return None
    noise = math.sqrt(sum(o.noise**2 for o in seen if o.log_objective is not None)) / len(values)
    return Best(trials[-1], sum(values) / len(values), noise)


def natural(objective: Objective, log_objective: float) -> float:
    """Return the metric's value: what is minimised is the logarithm's negative."""
    return math.exp(log_objective if objective.type == "maximize" else -log_objective)


def recommendation(world: World, trial: Known, log_objective: float, deviation: float) -> Recommendation:
    """Return what is said of a spec, without words."""
    ends = [natural(world.spec.objective, log_objective + sign * Z95 * deviation) for sign in (-1, 0, 1)]
    baseline = world.baseline
    return Recommendation(
        trial=trial.name,
        settings=list(trial.spec.settings),
        objective=ends[1],
        low=min(ends),
        high=max(ends),
        cost_per_hour=trial.spec.cost_per_hour,
        current_cost_per_hour=baseline.spec.cost_per_hour if baseline is not None else 0,
    )


def to_beat(world: World, rendered: Rendering) -> float | None:
    """Return the requests per second that this spec must do to beat the best; None where throughput does not decide.

    Of the best, the lower end of its interval counts: a spec that may be as good is measured to its end.
    """
    best = so_far(world)
    if best is None or best.trial.throughput is None or best.trial.status.result is None:
        return None
    objective, done = world.spec.objective, best.trial.status.result.throughput.low
    cost = best.trial.spec.cost_per_hour
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
