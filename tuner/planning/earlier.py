"""Which finished experiments a search may learn from: those with the same objective and parameters. Pure."""

from collections.abc import Iterable
from typing import Any

from serving.objects import Object
from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import FINISHED


def candidates(experiment: Object, others: Iterable[Object], most: int) -> list[Object]:
    """Return finished experiments, the newest first; the search decides whether they help.

    Args:
        experiment: that learns.
        others: all experiments of its namespace, including `experiment` or not.
        most: greatest number of experiments to return.
    """
    warm_start = experiment["spec"].get("warmStart") or {}
    if warm_start.get("enabled") is False:
        return []
    finished = [
        other
        for other in others
        if other["metadata"]["uid"] != experiment["metadata"]["uid"]
        and (other.get("status") or {}).get("phase") in FINISHED
        # Without a list of names, every experiment may be used.
        and other["metadata"]["name"] in (warm_start.get("experiments") or [other["metadata"]["name"]])
        and _axes(other) == _axes(experiment)
        and _objective(other) == _objective(experiment)
    ]
    finished.sort(key=lambda other: other["status"].get("completionTime", ""), reverse=True)
    return finished[:most]


def _axes(experiment: Object) -> list[tuple[str, str]]:
    """Return category and name of each tunable parameter, sorted."""
    return sorted(
        (group["category"], parameter["name"])
        for group in experiment["spec"]["tunableParameters"]
        for parameter in group["parameters"]
    )


def _objective(experiment: Object) -> tuple[Any, ...]:
    """Return the fields that objectives must share to be comparable."""
    objective = Objective.model_validate(experiment["spec"].get("objective") or {})
    percentile = objective.percentile if objective.objective_metric_name == "latency" else None
    rate = float(objective.rate) if objective.rate is not None else None
    return objective.objective_metric_name, objective.type, percentile, rate
