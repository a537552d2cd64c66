"""A finished Job → a ModelVersion, once; a finalizer holds the Job until its output has been captured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.objects import Object
from serving.planning.models.version import is_finished
from serving.resources import conditions, kinds, names

HANDED_OFF_ANNOTATION = "slipway.dev/handed-off"
"""On a Job that has been dealt with: the ModelVersion it became. Deleting that later does not build it again."""


@dataclass(frozen=True)
class Hold:
    """Put the finalizer on."""


@dataclass(frozen=True)
class CreateVersion:
    """Create this ModelVersion."""

    version: Object


@dataclass(frozen=True)
class Release:
    """Take the finalizer off; `handed_off` (if any) goes into the annotation in the same write."""

    handed_off: str
    warning: str = ""


Step = Hold | CreateVersion | Release | None


def model_of(job: Mapping[str, Any]) -> str:
    """Return the Model that the Job makes a version of; empty for other Jobs."""
    return str((job["metadata"].get("annotations") or {}).get(names.MODEL_ANNOTATION, ""))


def version_name(job: Mapping[str, Any]) -> str:
    """Return the name of the Job's ModelVersion."""
    meta = job["metadata"]
    explicit = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION)
    return (
        str(explicit) if explicit else f"{meta['name'][:57].rstrip('-.')}-{meta['uid'].replace('-', '')[:5]}"
    )


def next_step(job: Mapping[str, Any], version: Mapping[str, Any] | None) -> Step:
    """Return the one write to do next, or None.

    Args:
        job: any Job.
        version: the ModelVersion of the name that `version_name` says, or None.
    """
    meta = job["metadata"]
    held = names.HANDOFF_FINALIZER in (meta.get("finalizers") or [])
    done = HANDED_OFF_ANNOTATION in (meta.get("annotations") or {}) or conditions.is_true(job, "Failed")
    if done or not model_of(job):
        return Release("") if held else None
    going = bool(meta.get("deletionTimestamp"))
    if not held:
        return None if going else Hold()
    if not conditions.is_true(job, "Complete"):
        return Release("") if going else None
    return CreateVersion(_version(job)) if version is None else _follow(job, version)


def _follow(job: Mapping[str, Any], version: Mapping[str, Any]) -> Step:
    """Let go of a completed Job when its ModelVersion is finished, or turns out to be another's."""
    meta = job["metadata"]
    source = version["spec"]["source"].get("job") or {}
    name = version["metadata"]["name"]
    if source.get("uid") not in (meta["uid"], "", None) or source.get("name") != meta["name"]:
        return Release(name, warning=f"ModelVersion {name} exists already and is not from this Job")
    return Release(name) if is_finished(version) else None


def _version(job: Mapping[str, Any]) -> Object:
    meta = job["metadata"]
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": kinds.MODEL_VERSION.kind,
        "metadata": {
            "name": version_name(job),
            "namespace": meta["namespace"],
            "labels": {names.MODEL_LABEL: model_of(job)},
        },
        "spec": {
            "modelName": model_of(job),
            "source": {"job": {"name": meta["name"], "uid": meta["uid"]}},
            "createdBy": "hand-off",
        },
    }
