"""A Model's status, from its ModelVersions."""

from collections.abc import Iterable, Mapping
from typing import Any

from serving.objects import Object, is_deleting
from serving.planning.models.version import is_ready
from serving.resources import conditions, kinds
from serving.resources.conditions import Condition


def is_missing(versions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the missing Model of these versions has to be created.

    Versions with an owner have lost their Model: it was deleted on purpose, and garbage collection will
    delete them.
    """
    return any(not is_deleting(v) and not _is_owned(v["metadata"]) for v in versions)


def _is_owned(meta: Mapping[str, Any]) -> bool:
    return any(owner.get("kind") == kinds.MODEL.kind for owner in meta.get("ownerReferences") or [])


def status(model: Mapping[str, Any], versions: Iterable[Mapping[str, Any]], now: str) -> Object:
    """Return the status: the newest ready version by creation (ties by name), and the number of versions."""
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
