"""Turns a finished job into a ModelVersion, once; a finalizer holds the job until its output is captured."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serving.objects import Object, is_deleting
from serving.planning.models.job_kind import NOT_LISTED, TrainingJob, UnknownJob, of_reference
from serving.planning.models.version import is_finished
from serving.resources import kinds, names

MOST_OWNERS = 8
"""Most owners above a job that are followed: users write owner references, which may form a ring."""
HANDED_OFF_ANNOTATION = "slipway.dev/handed-off"
"""Annotation of a job whose hand-off is done, with the ModelVersion's name: once deleted, that version is not
created again."""
_JOB_NAME_CHARACTERS = 57
"""Of a job's name in its version's: with a hyphen and 5 digits of the uid, 63 characters."""


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
    """Name of the ModelVersion; empty if the job is not handed off."""
    warning: str = ""
    """Message of a warning Event; empty for none."""


HandOffStep = HoldJob | CreateVersion | ReleaseJob | None


def model_of(job: Mapping[str, Any]) -> str:
    """Return the Model of which the job makes a version; empty for other jobs."""
    return str((job["metadata"].get("annotations") or {}).get(names.MODEL_ANNOTATION, ""))


def version_name(job: Mapping[str, Any]) -> str:
    """Return the name of the job's ModelVersion."""
    meta = job["metadata"]
    explicit = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION)
    if explicit:
        return str(explicit)
    stem = meta["name"][:_JOB_NAME_CHARACTERS].replace(".", "-").rstrip("-")
    return f"{stem}-{_short_uid(meta)}"


def version_names(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of the job's ModelVersion, then its name in an earlier release, if different.

    Earlier releases kept the dots of the job's name, and no predictor could name such a version.
    """
    name, meta = version_name(job), job["metadata"]
    if names.MODEL_VERSION_ANNOTATION in (meta.get("annotations") or {}) or "." not in meta["name"]:
        return (name,)
    return (name, f"{meta['name'][:_JOB_NAME_CHARACTERS].rstrip('-.')}-{_short_uid(meta)}")


def _short_uid(meta: Mapping[str, Any]) -> str:
    return str(meta["uid"]).replace("-", "")[:5]


def problem(job: Mapping[str, Any]) -> str:
    """Return why no Model or version can have the names in the job's annotations; empty if they can."""
    for annotation, name in (
        (names.MODEL_ANNOTATION, model_of(job)),
        (names.MODEL_VERSION_ANNOTATION, version_name(job)),
    ):
        if not re.fullmatch(names.LABEL_PATTERN, name):
            return (
                f"metadata.annotations: {annotation} must be lowercase letters, digits and '-', at most 63"
                f" characters, got {name!r}"
            )
    return ""


def is_part_of_another(
    job: Object,
    owner_of: Callable[[Object], Object | UnknownJob | None],
    is_part_of_source: Callable[[Object], bool],
) -> bool | None:
    """Whether the job belongs to another one that makes a version, as a Job of a JobSet may: that one does.

    Args:
        job: any job.
        owner_of: returns the job that controls another one, or None.
        is_part_of_source: whether the job that controls another one has made a version. It decides where the
            owner cannot be read, whose annotations may have the model.

    Returns:
        None if it is not known yet, as the API has not listed the owner's kind.
    """
    for _ in range(MOST_OWNERS):
        owner = owner_of(job)
        if owner is None:
            return False
        if isinstance(owner, UnknownJob):
            return None if owner.reason == NOT_LISTED else is_part_of_source(job)
        if model_of(owner):
            return True
        job = owner
    return False


def next_step(job: TrainingJob, version: Mapping[str, Any] | None, *, is_part: bool = False) -> HandOffStep:
    """Return the next write, or None.

    Args:
        job: any job.
        version: the ModelVersion with the first of `version_names(job.object)` that exists, or None.
        is_part: whether the job belongs to another job that makes a version.
    """
    meta = job.object["metadata"]
    has_finalizer = names.HANDOFF_FINALIZER in (meta.get("finalizers") or [])
    done = HANDED_OFF_ANNOTATION in (meta.get("annotations") or {}) or job.outcome == "Failed"
    if done or is_part or not model_of(job.object):
        return ReleaseJob("") if has_finalizer else None
    if not has_finalizer:
        return None if is_deleting(job.object) else HoldJob()
    if job.outcome is None:
        return ReleaseJob("") if is_deleting(job.object) else None
    return CreateVersion(_version(job.object)) if version is None else _follow(job.object, version)


def _follow(job: Mapping[str, Any], version: Mapping[str, Any]) -> HandOffStep:
    """Release a job that has succeeded: once its ModelVersion is finished, or at once, with a warning, if the
    version is of another source.
    """
    meta = job["metadata"]
    source = version["spec"]["source"].get("job") or {}
    name = version["metadata"]["name"]
    is_same = source.get("name") == meta["name"] and of_reference(source) == of_reference(job)
    if not is_same or source.get("uid") not in (meta["uid"], "", None):
        warning = f"ModelVersion {name} exists already and is not from this {job['kind']}"
        return ReleaseJob(name, warning=warning)
    return ReleaseJob(name) if is_finished(version) else None


def _version(job: Mapping[str, Any]) -> Object:
    meta = job["metadata"]
    source = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": kinds.MODEL_VERSION.kind,
        "metadata": {
            "name": version_name(job),
            "namespace": meta["namespace"],
            "labels": {names.MODEL_LABEL: model_of(job)},
        },
        "spec": {"modelName": model_of(job), "source": {"job": source}, "createdBy": "hand-off"},
    }
