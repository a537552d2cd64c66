"""A ModelVersion's life: Pending (its source is not there yet) → Building → Ready or Failed, both for good."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.resources import conditions, names
from serving.resources.conditions import Condition
from serving.resources.model import Phase

Object = dict[str, Any]


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
    """Capture the output of this Job (or the path that the spec names)."""

    job: Object | None


@dataclass(frozen=True)
class Done:
    """Ready or Failed already."""


Step = Wait | Fail | Build | Done


def is_finished(version: Mapping[str, Any] | None) -> bool:
    """Whether it is Ready or Failed, for good."""
    return ((version or {}).get("status") or {}).get("phase") in ("Ready", "Failed")


def next_step(version: Mapping[str, Any], job: Object | None) -> Step:
    """Return what to do with a ModelVersion, given the Job of its source's name (or None)."""
    if is_finished(version):
        return Done()
    source = version["spec"]["source"]
    if "job" not in source:
        return Build(None)
    name, uid = source["job"]["name"], source["job"].get("uid", "")
    if job is not None:
        return _after_job(job, name, uid)
    if uid:
        return Fail("JobGone", f"Job {name} was deleted before its output was captured")
    return Wait("JobNotFound", f"there is no Job {name}")


def _after_job(job: Object, name: str, uid: str) -> Step:
    if uid and job["metadata"]["uid"] != uid:
        return Fail("JobReplaced", f"Job {name} is another one than that with the uid {uid}")
    if conditions.is_true(job, "Failed"):
        return Fail("JobFailed", f"Job {name} failed")
    if not conditions.is_true(job, "Complete"):
        return Wait("JobRunning", f"Job {name} has not completed yet")
    return Build(job)


def lineage(version: Mapping[str, Any], job: Object | None) -> dict[str, str]:
    """Return where the files come from."""
    if job is None:
        return {"kind": "Path", "path": version["spec"]["source"].get("path", "")}
    return {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def repository(version: Mapping[str, Any]) -> str:
    """Return the image's name without tag or digest."""
    return f"{names.LOCAL_REGISTRY}/{version['metadata']['namespace']}/{version['spec']['modelName']}"


def status(
    version: Mapping[str, Any],
    phase: Phase,
    condition: tuple[str, str],
    now: str,
    built: Mapping[str, Any] | None = None,
) -> Object:
    """Return the whole status to write.

    Args:
        version: the ModelVersion.
        phase: where it is.
        condition: reason and message of `Ready`, which is True in phase Ready alone.
        now: RFC 3339; the finish time of a final phase.
        built: image, digest, size and so on, once there are any.
    """
    generation = version["metadata"].get("generation", 1)
    old = (version.get("status") or {}).get("conditions")
    ready = Condition("Ready", "True" if phase == "Ready" else "False", *condition)
    result: Object = {
        "phase": phase,
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
