"""Which finished experiments a search may learn from: those that asked the same of the same parameters. Pure."""

from collections.abc import Iterable
from typing import Any

from serving.objects import Object
from serving.resources.experiment import Objective
from serving.resources.trial import FINISHED


def candidates(asked: Object, others: Iterable[Object], most: int) -> list[Object]:
    """Return experiments that are over, the newest first; whether they help is for the search to say.

    Args:
        asked: the experiment that is to learn.
        others: all of its namespace; it may be one of them.
        most: of them, so many.
    """
    wanted = asked["spec"].get("warmStart") or {}
    if wanted.get("enabled") is False:
        return []
    found = [
        other
        for other in others
        if other["metadata"]["uid"] != asked["metadata"]["uid"]
        and (other.get("status") or {}).get("phase") in FINISHED
        and other["metadata"]["name"] in (wanted.get("experiments") or [other["metadata"]["name"]])
        and _axes(other) == _axes(asked)
        and _objective(other) == _objective(asked)
    ]
    found.sort(key=lambda other: other["status"].get("completionTime", ""), reverse=True)
    return found[:most]


def _axes(experiment: Object) -> list[tuple[str, str]]:
    return sorted(
        (group["category"], parameter["name"])
        for group in experiment["spec"]["tunableParameters"]
        for parameter in group["parameters"]
    )


def _objective(experiment: Object) -> tuple[Any, ...]:
    """Return what two objectives must share for a value of one to say something of the other."""
    found = Objective.model_validate(experiment["spec"].get("objective") or {})
    percentile = found.percentile if found.objective_metric_name == "latency" else None
    rate = float(found.rate) if found.rate is not None else None
    return found.objective_metric_name, found.type, percentile, rate
