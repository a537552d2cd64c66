"""An experiment and its Trials as objects, and a minimal search, so that tests compare everything else.

The search measures specs in the order of the space, confirms the best once, and recommends.
"""

from collections.abc import Sequence
from typing import Any

from serving.objects import Object
from serving.resources import kinds
from tests.fakes.surroundings import ready_version
from tuner.search.decision_values import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.problem import Budget, Earlier, Problem, TrialObservation
from tuner.settings import SearchSettings

NS = "default"
REGRET = 0.05


def parameters(**resources: list[str]) -> list[Object]:
    axes = [
        {"name": name, "parameterType": "discrete", "feasibleSpace": {"list": values}}
        for name, values in resources.items()
    ]
    return [{"category": "resource", "parameters": axes}]


def experiment(name: str = "pe", **spec: Any) -> Object:
    """Return an experiment over 4 specs of the ModelVersion `v1`; the arguments replace fields."""
    body = {
        "target": {"modelVersion": "v1", "framework": "sklearn"},
        "tunableParameters": parameters(cpu=["500m", "1"], memory=["256Mi", "512Mi"]),
        "objective": {"type": "maximize", "objectiveMetricName": "throughputPerCost"},
        "prices": {"cpu": "1", "memory": "0.1"},
        "maxNumTrials": 10,
        "parallelism": 1,
        **spec,
    }
    return {
        "apiVersion": kinds.PROFILING_EXPERIMENT.api_version,
        "kind": "ProfilingExperiment",
        "metadata": {"name": name, "namespace": NS, "uid": f"uid-{name}", "generation": 1},
        "spec": body,
    }


def window(level: float = 4, throughput: float = 100.0, p99: float = 0.05, **fields: Any) -> Object:
    return {
        "level": level,
        "startTime": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "requests": int(throughput),
        "errors": 0,
        "throughput": {"value": throughput, "low": throughput * 0.98, "high": throughput * 1.02},
        "latencies": [
            {"metric": "latency", "percentile": 99, "value": p99, "low": p99 * 0.9, "high": p99 * 1.1}
        ],
        "errorRate": {"value": 0.0, "low": 0.0, "high": 0.01},
        "meets": "Yes",
        **fields,
    }


def measured(throughput: float = 100.0, **fields: Any) -> Object:
    """Return the status of a trial that was measured."""
    result = window(throughput=throughput)
    return {
        "phase": "Succeeded",
        "reason": "Measured",
        "windows": [result],
        "result": result,
        "seconds": 36.0,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:36Z",
        "machine": "a machine",
        **fields,
    }


def failed(reason: str, message: str = "", **fields: Any) -> Object:
    return {"phase": "Failed", "reason": reason, "message": message, "seconds": 5.0, **fields}


def model_version(name: str = "v1") -> Object:
    return ready_version(name)


def plain(
    problem: Problem,
    observations: Sequence[TrialObservation],
    pending: Sequence[int],
    budget: Budget,
    earlier: Sequence[Earlier],
    *,
    settings: SearchSettings,
    seed: int,
    algorithm: str,
) -> Decision:
    tried = {observation.index for observation in observations} | set(pending)
    broken = {o.index for o in observations if not o.feasible}
    feasible = [
        o for o in observations if o.feasible and o.log_objective is not None and o.index not in broken
    ]
    ranked = list(dict.fromkeys(o.index for o in sorted(feasible, key=lambda o: -(o.log_objective or 0.0))))
    best = ranked[0] if ranked else None
    # The last trial of the budget is reserved for the confirmation.
    planned = range(min(problem.size, max(1, budget.trials - 1)))
    new = [index for index in planned if index not in tried]
    remaining = budget.trials - len(observations) - len(pending)
    if new and remaining:
        return Explore(tuple(new[: budget.parallelism - len(pending)]), REGRET, best=best)
    if pending:
        return Wait(REGRET, best=best)
    if best is None:
        nearest = next((o for o in observations if o.boots), None)
        if nearest is None:
            return Impossible(None, None, (), 0.1)
        return Impossible(0, nearest.index, nearest.margins, 0.1)
    if remaining and not any(o.index == best and o.confirms for o in observations):
        return Confirm((best,), REGRET, best=best)
    reason = "exhausted" if len(planned) == problem.size else "budget"
    return Recommend(best, REGRET, reason, best=best)
