"""The phases of a ModelVersion: Pending (its source is not ready) → Building → Ready or Failed.

Failed is final. A Ready version becomes Blocked while it violates a policy, and Ready again afterwards.
`serving.planning.models.retention` decides what happens when it is deleted.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.backoff import backoff_seconds
from serving.objects import Object, is_deleting
from serving.planning.models import policy
from serving.planning.models.job_kind import TrainingJob, UnknownJob, of_reference
from serving.planning.models.policy import Examination, ModelPolicy
from serving.resources import kinds, names
from serving.resources.formats import file_list
from serving.resources.kubernetes import conditions, owner_references
from serving.resources.kubernetes.conditions import Condition, StatusReason
from serving.resources.model import Phase


@dataclass(frozen=True)
class AdoptVersion:
    """Write this metadata: the finalizer, which makes deletion wait for the image, and the Model as owner."""

    metadata: Object


@dataclass(frozen=True)
class WaitForSource:
    """The source is not ready; the controller is woken when it changes."""

    reason: str
    message: str


@dataclass(frozen=True)
class FailVersion:
    """The version becomes Failed: its immutable source can never be built, or all attempts failed."""

    reason: str
    message: str
    missing_uid: str = ""
    """Uid of the job that the copy of the jobs lacks. The copy may lag behind that of the versions, so the
    version fails only if the API lacks the job too."""


@dataclass(frozen=True)
class BuildImage:
    """Build the image from the output of this job, or from the source in the spec."""

    job: TrainingJob | None
    captured: str = ""
    """Reference of the image of the job's output, with its digest, if a Pod has pushed it; else empty."""


@dataclass(frozen=True)
class RetryBuild:
    """The attempt failed; the next attempt is due in `seconds`."""

    reason: str
    message: str
    seconds: float


@dataclass(frozen=True)
class ExamineImage:
    """Find the image's files with code and its signatures: the status lacks results of an examination."""


@dataclass(frozen=True)
class ApplyPolicies:
    """Write the phase and the reason that the policies give the version: the stored ones differ."""


@dataclass(frozen=True)
class VersionFinished:
    """The version is Ready, Blocked or Failed already."""


VersionStep = (
    AdoptVersion | WaitForSource | FailVersion | BuildImage | ExamineImage | ApplyPolicies | VersionFinished
)
CORRECTABLE = frozenset({"Unauthorized", "InvalidCredentials", "InvalidKey", "UntrustedCertificate"})
"""Reasons that an administrator of the Secret or the registry can correct: another attempt may succeed."""
_MAX_TAG = 118
"""Most characters of a tag, to which a push adds `-modelpack`: a registry allows 128."""
_OWN_STATUS = frozenset({"phase", "attempts", "observedGeneration", "conditions", "finishTime"})
"""Fields of the status that describe the version's progress, not its image."""


def is_finished(version: Mapping[str, Any] | None) -> bool:
    """Whether the version has its image (Ready, or Blocked by a policy), or never will (Failed)."""
    return ((version or {}).get("status") or {}).get("phase") in ("Ready", "Blocked", "Failed")


def has_image(version: Mapping[str, Any]) -> bool:
    """Whether the status has the version's image, which it keeps: only its phase may be that of others."""
    status = version.get("status") or {}
    return bool(status.get("image") and status.get("digest"))


def is_ready(version: Mapping[str, Any]) -> bool:
    """Whether the version is Ready and is not being deleted."""
    deleting = is_deleting(version)
    return (version.get("status") or {}).get("phase") == "Ready" and not deleting


def blocked(version: Mapping[str, Any]) -> str:
    """Return why a policy blocks the version, with its name; empty if none does."""
    status = version.get("status") or {}
    if status.get("phase") != "Blocked":
        return ""
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    return f"ModelVersion {version['metadata']['name']} is blocked: {ready.get('message', '')}"


def must_stop(version: Mapping[str, Any]) -> bool:
    """Whether the replicas of a blocked version stop.

    A policy that is not valid starts no more of them: a typo must not end the serving replicas.
    """
    status = version.get("status") or {}
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    return status.get("phase") == "Blocked" and ready.get("reason") != policy.POLICY_INVALID


def next_step(
    version: Mapping[str, Any],
    job: TrainingJob | UnknownJob | None,
    model: Object | None,
    policies: Sequence[ModelPolicy] | None = None,
    examination: Examination | None = None,
) -> VersionStep:
    """Return the next step for a ModelVersion that is not being deleted.

    Args:
        version: the ModelVersion.
        job: the job that its source names, or None.
        model: its Model, which has the build policy. If it is None, the Model controller is about to create
            it.
        policies: the model policies for its namespace; None if they are not known yet, so that a finished
            version remains as it is.
        examination: the last one by this process, if any.
    """
    if model is not None and (metadata := _missing_metadata(version, model)):
        return AdoptVersion(metadata)
    # Another phase of a version with an image was written by others. It is not built again, as its source may
    # be gone.
    if is_finished(version) or has_image(version):
        return VersionFinished() if policies is None else _after_finish(version, policies, examination)
    if model is None:
        return WaitForSource("ModelNotFound", f"there is no Model {version['spec']['modelName']} yet")
    source = version["spec"]["source"]
    return _from_job(source["job"], job) if "job" in source else BuildImage(None)


def _after_finish(
    version: Mapping[str, Any], policies: Sequence[ModelPolicy], examination: Examination | None
) -> VersionStep:
    """Return the next step for a finished version, to which the policies have to be applied.

    The phase and the condition `Ready` are derived again, as others may have changed them.
    """
    status = version["status"]
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    if not has_image(version) and status["phase"] == "Failed":
        if ready.get("status") == "False":
            return VersionFinished()
        return FailVersion(
            ready.get("reason", "Failed"),
            ready.get("message", "the reason was removed from the status by another writer"),
        )
    if policy.is_unexamined(policies, status, examination):
        return ExamineImage()
    phase, reason = judge(policies, status, examination)
    derived = _ready(phase, reason)
    is_reported = derived == Condition(
        "Ready", ready.get("status", "Unknown"), ready.get("reason", ""), ready.get("message", "")
    )
    return VersionFinished() if phase == status.get("phase") and is_reported else ApplyPolicies()


def judge(
    policies: Sequence[ModelPolicy], status: Mapping[str, Any], examination: Examination | None = None
) -> tuple[Phase, StatusReason]:
    """Return the phase of a version that has its image, and the reason of its condition `Ready`."""
    problem = examination.problem if examination is not None else ""
    if (violation := policy.violation(policies, status, problem)) is not None:
        return "Blocked", violation
    return "Ready", StatusReason("Built", f"image {status['digest']}")


def _from_job(source: Mapping[str, Any], job: TrainingJob | UnknownJob | None) -> VersionStep:
    """Return the next step for an unfinished version whose source is the job that `source` refers to."""
    name, uid = f"{of_reference(source)[1]} {source['name']}", source.get("uid", "")
    if isinstance(job, UnknownJob):
        return WaitForSource(job.reason, job.message)
    if job is not None:
        return _after_job(job, name, uid)
    if uid:
        return FailVersion("JobGone", f"{name} was deleted before its output was captured", uid)
    return WaitForSource("JobNotFound", f"there is no {name}")


def _missing_metadata(version: Mapping[str, Any], model: Mapping[str, Any]) -> Object:
    """Return the metadata to write: the finalizers and the owners, each only if an entry was missing."""
    meta = version["metadata"]
    missing: Object = {}
    finalizers = list(meta.get("finalizers") or [])
    if names.MODEL_IMAGE_FINALIZER not in finalizers:
        missing["finalizers"] = [*finalizers, names.MODEL_IMAGE_FINALIZER]
    if not is_deleting(model) and owner_references.controller_of(version) is None:
        model_reference = owner_references.controller_reference(kinds.MODEL, model)
        missing["ownerReferences"] = [*(meta.get("ownerReferences") or []), model_reference]
    return missing


def after_failure(
    attempts: int,
    reason: str,
    message: str,
    retry_after: float | None,
    *,
    limit: int,
    base: float,
    cap: float,
) -> RetryBuild | FailVersion:
    """Return the step after an attempt that failed for a temporary reason.

    Args:
        attempts: failed attempts, including this one.
        reason: of this failure, in CamelCase.
        message: for people.
        retry_after: seconds that the server asked to wait, if any.
        limit: attempts before the version fails.
        base: seconds before the second attempt; doubles.
        cap: maximum seconds between attempts, also for `retry_after`.
    """
    if attempts >= limit:
        return FailVersion(reason, f"{message}; given up after {attempts} attempts")
    delay = min(max(backoff_seconds(attempts, base, cap), retry_after or 0.0), cap)
    return RetryBuild(reason, f"{message}; attempt {attempts} of {limit}, the next in {delay:g} s", delay)


def _after_job(job: TrainingJob, name: str, uid: str) -> VersionStep:
    """Return the next step by the outcome of the job; `uid`, unless empty, is that of the source."""
    if uid and job.object["metadata"]["uid"] != uid:
        return FailVersion("JobReplaced", f"{name} does not have the uid {uid}: it was replaced", uid)
    if job.outcome == "Failed":
        return FailVersion("JobFailed", f"{name} failed")
    if job.outcome is None:
        return WaitForSource("JobRunning", f"{name} has not completed yet")
    return BuildImage(job)


def lineage(version: Mapping[str, Any], job: Object | None) -> dict[str, str]:
    """Return the origin of the files; the digest of a pulled image is added later."""
    source = version["spec"]["source"]
    if job is not None:
        described = {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
        return {"apiVersion": job["apiVersion"], "kind": job["kind"], **described}
    field = next(name for name in ("path", "uri", "image") if name in source)
    kind = {"path": "Path", "uri": "URI", "image": "Image"}[field]
    return {"kind": kind, field: source[field]}


def repository(version: Mapping[str, Any]) -> str:
    """Return the name of the image, without tag or digest."""
    return f"{names.LOCAL_REGISTRY}/{version['metadata']['namespace']}/{version['spec']['modelName']}"


def tag(version: Mapping[str, Any]) -> str:
    """Return the tag of the image in a registry: the version's name; a long name is cut and gets a hash."""
    name = str(version["metadata"]["name"])
    if len(name) <= _MAX_TAG:
        return name
    suffix = f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{name[: _MAX_TAG - len(suffix)]}{suffix}"


def status(
    version: Mapping[str, Any],
    phase: Phase,
    reason: StatusReason,
    now: str,
    built: Mapping[str, Any] | None = None,
    *,
    attempts: int = 0,
) -> Object:
    """Return the whole status to write.

    Args:
        version: the ModelVersion.
        phase: its new phase.
        reason: the reason of the condition `Ready`, which is True only in phase Ready.
        now: RFC 3339; becomes the finish time of a version that finishes now.
        built: image, digest, size and so on, once known.
        attempts: failed attempts so far.
    """
    generation = version["metadata"].get("generation", 1)
    old = version.get("status") or {}
    ready = _ready(phase, reason)
    result: Object = {
        "phase": phase,
        "attempts": attempts,
        "observedGeneration": generation,
        "conditions": conditions.merge(old.get("conditions"), [ready], generation=generation, now=now),
        **(built or {}),
    }
    if phase in ("Ready", "Blocked", "Failed"):
        result["finishTime"] = old.get("finishTime", now)
    return result


def _ready(phase: Phase, reason: StatusReason) -> Condition:
    return Condition("Ready", "True" if phase == "Ready" else "False", reason.reason, reason.message)


def files_digest(version: Mapping[str, Any]) -> str:
    """Return the digest of `files.json`; it is computed if the status, by an earlier release, lacks it."""
    status = version["status"]
    listed = [(file["path"], file["digest"], file["size"]) for file in status.get("files") or []]
    return status.get("filesDigest") or file_list.digest(listed)


def image_status(version: Mapping[str, Any]) -> Object:
    """Return the part of the stored status that describes the image."""
    return {name: value for name, value in version["status"].items() if name not in _OWN_STATUS}


def describe(
    *,
    image: str,
    digest: str,
    size: int,
    framework: str,
    metrics: Mapping[str, float],
    files: Sequence[tuple[str, str, int]],
    origin: Mapping[str, str],
    source_revision: str,
    examined: Mapping[str, Any],
) -> Object:
    """Return the part of the status that describes the image.

    Args:
        image: repository and digest.
        digest: digest of the image's manifest.
        size: total bytes of the files.
        framework: the framework of the version or its output.
        metrics: metrics of the training, by name.
        files: (path, digest, bytes) of each file, as in `file_list`.
        origin: the result of `lineage`.
        source_revision: revision of the training program; empty if unknown.
        examined: the result of `examined`.
    """
    return {
        "image": image,
        "digest": digest,
        "size": size,
        "framework": framework,
        "metrics": dict(metrics),
        "files": [{"path": path, "digest": sha, "size": bytes_} for path, sha, bytes_ in files],
        "filesDigest": file_list.digest(files),
        "lineage": {**origin, **({"sourceRevision": source_revision} if source_revision else {})},
        **examined,
    }


def examined(code: Mapping[str, str], signed_by: Iterable[str]) -> Object:
    """Return the part of the status with the results of an examination of the image.

    Args:
        code: format of each file with code, by path.
        signed_by: fingerprints of the keys that have signed the image.
    """
    files = [{"path": path, "format": file_format} for path, file_format in sorted(code.items())]
    contents: Object = {"containsCode": bool(files), **({"files": files} if files else {})}
    return {"contents": contents, "signedBy": sorted(signed_by)}
