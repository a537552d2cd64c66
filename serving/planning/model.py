"""A Model's status from its ModelVersions."""

from collections.abc import Iterable, Mapping
from typing import Any

from serving.planning.release import is_ready
from serving.resources import conditions
from serving.resources.conditions import Condition

Object = dict[str, Any]


def is_missing(versions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a Model that is not there has to be made for these versions.

    Those that have an owner lost it: they are about to be collected, and their Model was deleted on purpose.
    """
    return any(
        "deletionTimestamp" not in version["metadata"] and not version["metadata"].get("ownerReferences")
        for version in versions
    )


def status(model: Mapping[str, Any], versions: Iterable[Mapping[str, Any]], now: str) -> Object:
    """Return the status to write: the newest ready version by creation (ties by name), and how many there are."""
    versions = list(versions)
    ready = [v for v in versions if is_ready(v)]
    latest = max(
        ready, key=lambda v: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]), default=None
    )
    generation = model["metadata"].get("generation", 1)
    if latest is None:
        condition = Condition("Ready", "False", "NoReadyVersion", "no ModelVersion of this Model is ready")
    else:
        condition = Condition("Ready", "True", "VersionReady", f"latest: {latest['metadata']['name']}")
    old = (model.get("status") or {}).get("conditions")
    result: Object = {
        "versions": len(versions),
        "observedGeneration": generation,
        "conditions": conditions.merge(old, [condition], generation=generation, now=now),
    }
    if latest is not None:
        result["latestVersion"] = {"name": latest["metadata"]["name"], "image": latest["status"]["image"]}
    return result
