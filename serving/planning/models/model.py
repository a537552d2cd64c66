"""A Model's status, from its ModelVersions."""

from collections.abc import Iterable, Mapping
from typing import Any

from serving.objects import Object, is_deleting
from serving.planning.models.version import is_ready
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import Condition


def must_be_created(versions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the missing Model of these versions has to be created.

    Versions with a Model as owner have lost it: it was deleted on purpose, and garbage collection will delete
    them.
    """
    return any(not is_deleting(version) and not _is_owned(version["metadata"]) for version in versions)


def _is_owned(meta: Mapping[str, Any]) -> bool:
    return any(owner.get("kind") == kinds.MODEL.kind for owner in meta.get("ownerReferences") or [])


def status(model: Mapping[str, Any], versions: Iterable[Mapping[str, Any]], now: str) -> Object:
    """Return the status: the newest ready version by creation (ties by name), and the number of versions."""
    versions = list(versions)
    ready = [version for version in versions if is_ready(version)]
    latest = max(
        ready,
        key=lambda version: (version["metadata"]["creationTimestamp"], version["metadata"]["name"]),
        default=None,
    )
    generation = model["metadata"].get("generation", 1)
    if latest is None:
        condition = Condition("Ready", "False", "NoReadyVersion", "no ModelVersion of this Model is ready")
    else:
        condition = Condition("Ready", "True", "VersionReady", f"latest: {latest['metadata']['name']}")
    stored_conditions = (model.get("status") or {}).get("conditions")
    result: Object = {
        "versions": len(versions),
        "observedGeneration": generation,
        "conditions": conditions.merge(stored_conditions, [condition], generation=generation, now=now),
    }
    if latest is not None:
        result["latestVersion"] = {"name": latest["metadata"]["name"], "image": latest["status"]["image"]}
    return result
