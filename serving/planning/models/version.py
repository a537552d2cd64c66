"""A ModelVersion's life: Pending (its source is not there yet) → Building → Ready or Failed, both for good.

What happens to one that is being deleted is `serving.planning.models.release`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.objects import Object
from serving.resources import conditions, kinds, names
from serving.resources.conditions import Condition
from serving.resources.model import Phase


@dataclass(frozen=True)
class Hold:
    """Write this metadata: the finalizer, by which deletion waits for the image, and the Model as owner."""

    metadata: Object


@dataclass(frozen=True)
class Wait:
    """The source is not there yet; what happens to it wakes the controller."""

    reason: str
    message: str


@dataclass(frozen=True)
class Fail:
    """Nothing can become of it: its spec cannot change."""

    reason: str
    message: str


@dataclass(frozen=True)
class Build:
    """Make the image: of the output of this Job, or of what the spec names."""

    job: Object | None


@dataclass(frozen=True)
class Retry:
    """The try failed; another is due in `seconds`."""

    reason: str
    message: str
    seconds: float


@dataclass(frozen=True)
class Done:
    """Ready or Failed already."""


Step = Hold | Wait | Fail | Build | Done


def is_finished(version: Mapping[str, Any] | None) -> bool:
    """Whether it is Ready or Failed, for good."""
    return ((version or {}).get("status") or {}).get("phase") in ("Ready", "Failed")


def next_step(version: Mapping[str, Any], job: Object | None, model: Object | None) -> Step:
    """Return what to do with a ModelVersion that is not being deleted.

    Args:
        version: the ModelVersion.
        job: the Job of its source's name, or None.
        model: its Model; while there is none the policy to build by is not known, and the Model controller makes one.
    """
    if model is not None and (metadata := _unheld(version["metadata"], model)):
        return Hold(metadata)
    if is_finished(version):
        return Done()
    if model is None:
        return Wait("ModelNotFound", f"there is no Model {version['spec']['modelName']} yet")
    source = version["spec"]["source"]
    return _of_job(source["job"], job) if "job" in source else Build(None)


def _of_job(source: Mapping[str, Any], job: Object | None) -> Step:
    name, uid = source["name"], source.get("uid", "")
    if job is not None:
        return _after_job(job, name, uid)
    if uid:
        return Fail("JobGone", f"Job {name} was deleted before its output was captured")
    return Wait("JobNotFound", f"there is no Job {name}")


def _unheld(meta: Mapping[str, Any], model: Mapping[str, Any]) -> Object:
    """Return what is missing: nothing where it is held and owned."""
    missing: Object = {}
    finalizers = list(meta.get("finalizers") or [])
    if names.MODEL_IMAGE_FINALIZER not in finalizers:
        missing["finalizers"] = [*finalizers, names.MODEL_IMAGE_FINALIZER]
    owners = list(meta.get("ownerReferences") or [])
    going = "deletionTimestamp" in model["metadata"]
    if not going and not any(owner.get("controller") for owner in owners):
        missing["ownerReferences"] = [*owners, _owner(model)]
    return missing


def _owner(model: Mapping[str, Any]) -> Object:
    meta = model["metadata"]
    return {
        "apiVersion": kinds.MODEL.api_version, "kind": kinds.MODEL.kind, "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def after_failure(
    attempts: int, reason: str, message: str, asked: float | None, *, limit: int, base: float, cap: float
) -> Retry | Fail:
    """Return what follows a try that failed for a reason that may pass.

    Args:
        attempts: tries that have failed, this one included.
        reason: CamelCase, of this one.
        message: for people.
        asked: seconds that whoever refused wants us to wait, if they said so.
        limit: tries before it has failed for good.
        base: seconds before the second try; doubles.
        cap: most seconds between tries, whatever was asked for.
    """
    if attempts >= limit:
        return Fail(reason, f"{message}; given up after {attempts} attempts")
    backoff = min(base * 2 ** min(attempts - 1, 30), cap)
    delay = min(max(backoff, asked or 0.0), cap)
    return Retry(reason, f"{message}; attempt {attempts} of {limit}, the next in {delay:g} s", delay)


def _after_job(job: Object, name: str, uid: str) -> Step:
    if uid and job["metadata"]["uid"] != uid:
        return Fail("JobReplaced", f"Job {name} is another one than that with the uid {uid}")
    if conditions.is_true(job, "Failed"):
        return Fail("JobFailed", f"Job {name} failed")
    if not conditions.is_true(job, "Complete"):
        return Wait("JobRunning", f"Job {name} has not completed yet")
    return Build(job)


def lineage(version: Mapping[str, Any], job: Object | None) -> dict[str, str]:
    """Return where the files come from; an image's digest is added by whoever resolves it."""
    if job is not None:
        return {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    source = version["spec"]["source"]
    field = next(name for name in ("path", "uri", "image") if name in source)
    kind = {"path": "Path", "uri": "URI", "image": "Image"}[field]
    return {"kind": kind, field: source[field]}


def repository(version: Mapping[str, Any]) -> str:
    """Return the image's name without tag or digest."""
    return f"{names.LOCAL_REGISTRY}/{version['metadata']['namespace']}/{version['spec']['modelName']}"


def status(
    version: Mapping[str, Any],
    phase: Phase,
    condition: tuple[str, str],
    now: str,
    built: Mapping[str, Any] | None = None,
    *,
    attempts: int = 0,
) -> Object:
    """Return the whole status to write.

    Args:
        version: the ModelVersion.
        phase: where it is.
        condition: reason and message of `Ready`, which is True in phase Ready alone.
        now: RFC 3339; the finish time of a final phase.
        built: image, digest, size and so on, once there are any.
        attempts: tries that have failed so far.
    """
    generation = version["metadata"].get("generation", 1)
    old = (version.get("status") or {}).get("conditions")
    ready = Condition("Ready", "True" if phase == "Ready" else "False", *condition)
    result: Object = {
        "phase": phase,
        "attempts": attempts,
        "observedGeneration": generation,
        "conditions": conditions.merge(old, [ready], generation=generation, now=now),
        **(built or {}),
    }
    if phase in ("Ready", "Failed"):
        result["finishTime"] = now
    return result


def describe(
    *, image: str, digest: str, size: int, framework: str, metrics: Mapping[str, float],
    files: Sequence[tuple[str, str, int]], origin: Mapping[str, str], source_revision: str,
) -> Object:  # fmt: skip
    """Return the part of the status that says what was built; `files` are (path, digest, bytes)."""
    return {
        "image": image, "digest": digest, "size": size, "framework": framework, "metrics": dict(metrics),
        "files": [{"path": path, "digest": sha, "size": bytes_} for path, sha, bytes_ in files],
        "lineage": {**origin, **({"sourceRevision": source_revision} if source_revision else {})},
    }  # fmt: skip
