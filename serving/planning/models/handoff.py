"""Turns a finished Job into a ModelVersion, once; a finalizer holds the Job until its output is captured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.objects import Object, is_deleting
from serving.planning.models.version import is_finished
from serving.resources import conditions, kinds, names

HANDED_OFF_ANNOTATION = "slipway.dev/handed-off"
"""On a Job whose hand-off is done: the ModelVersion. If that is deleted later, it is not built again."""


@dataclass(frozen=True)
class HoldJob:
    """Add the finalizer."""


@dataclass(frozen=True)
class CreateVersion:
    """Create this ModelVersion."""

    version: Object


@dataclass(frozen=True)
class ReleaseJob:
    """Remove the finalizer, and write `handed_off` (if any) into the annotation in the same request."""

    handed_off: str
    warning: str = ""


HandOffStep = HoldJob | CreateVersion | ReleaseJob | None


def model_of(job: Mapping[str, Any]) -> str:
    """Return the Model of which the Job makes a version; empty for other Jobs."""
    return str((job["metadata"].get("annotations") or {}).get(names.MODEL_ANNOTATION, ""))


def version_name(job: Mapping[str, Any]) -> str:
    """Return the name of the Job's ModelVersion."""
    meta = job["metadata"]
    explicit = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION)
    if explicit:
        return str(explicit)
    return f"{meta['name'][:57].rstrip('-.')}-{meta['uid'].replace('-', '')[:5]}"


def next_step(job: Mapping[str, Any], version: Mapping[str, Any] | None) -> HandOffStep:
    """Return the next write, or None.

    Args:
        job: any Job.
        version: the ModelVersion named `version_name(job)`, or None.
    """
    meta = job["metadata"]
    has_finalizer = names.HANDOFF_FINALIZER in (meta.get("finalizers") or [])
    done = HANDED_OFF_ANNOTATION in (meta.get("annotations") or {}) or conditions.is_true(job, "Failed")
    if done or not model_of(job):
        return ReleaseJob("") if has_finalizer else None
    if not has_finalizer:
        return None if is_deleting(job) else HoldJob()
    if not conditions.is_true(job, "Complete"):
        return ReleaseJob("") if is_deleting(job) else None
    return CreateVersion(_version(job)) if version is None else _follow(job, version)


def _follow(job: Mapping[str, Any], version: Mapping[str, Any]) -> HandOffStep:
    """Release a completed Job once its ModelVersion is finished, or belongs to another source."""
    meta = job["metadata"]
    source = version["spec"]["source"].get("job") or {}
    name = version["metadata"]["name"]
    if source.get("uid") not in (meta["uid"], "", None) or source.get("name") != meta["name"]:
        return ReleaseJob(name, warning=f"ModelVersion {name} exists already and is not from this Job")
    return ReleaseJob(name) if is_finished(version) else None


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
