"""Plans the capture of a finished job's output: by whom, and the next step once the capture has ended. Pure.

On one machine the controllers read the output themselves. On a cluster a *capture Job* of the controllers
(`serving.planning.models.capture_job`), or a container of the training job's own Pod, pushes the image of the
output to the Model's registry, and reports the image's digest in its termination message.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from serving import errors
from serving.objects import Object, is_deleting
from serving.planning.inference import replicas
from serving.planning.models import capture_job, job_output, volume
from serving.planning.models.job_kind import TrainingJob
from serving.planning.models.version import CORRECTABLE, BuildImage, FailVersion, WaitForSource
from serving.planning.models.volume import AUTO
from serving.resources import names
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.conditions import StatusReason
from serving.resources.model import ModelSpec
from serving.settings import RuntimeImageSettings

CHOICES = (AUTO, "local", "job")
"""Values of the setting `models.capture`."""
_WAITING = "Capturing"
_FAILED = "CaptureFailed"
_SAMPLE = "manifests/samples/captured-job.yaml"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class CreateCapture:
    """Create the capture Job `job`."""

    job: Object


@dataclass(frozen=True)
class WaitForCapture:
    """The capture Job runs, or cannot run yet."""

    reason: str
    message: str


@dataclass(frozen=True)
class CaptureFailed:
    """A capture Job has failed, and the failure is not counted yet.

    Another capture Job may succeed, unless the failure `is_final`.
    """

    reason: str
    message: str
    is_final: bool = False


@dataclass(frozen=True)
class DiscardCapture:
    """Delete the capture Job `job`, whose failure is counted, once the next attempt is due."""

    job: Object


CaptureStep = (
    CreateCapture | WaitForCapture | CaptureFailed | DiscardCapture | WaitForSource | FailVersion | BuildImage
)


@dataclass(frozen=True)
class ObservedCapture:
    """The training job and its capture Job, with their Pods."""

    job: TrainingJob
    """The job that has written the output."""
    pods: Sequence[Object]
    """The training job's Pods that may have the output, the best first."""
    capture: Object | None = None
    """The capture Job, if there is one."""
    capture_pods: Sequence[Object] = ()
    """The Pods of the capture Job."""


class Captured(NamedTuple):
    """The pushed image of an output."""

    repository: str
    digest: str
    """Digest of the image's manifest."""
    files_digest: str
    """Digest of `files.json`, the list of the image's files."""


def encode(captured: Captured) -> str:
    """Return the termination message of a capture."""
    return json.dumps(
        {
            "repository": captured.repository,
            "digest": captured.digest,
            "filesDigest": captured.files_digest,
        }
    )


def decode(message: str) -> Captured | None:
    """Return the result in a termination message; None if it has none."""
    try:
        fields = json.loads(message)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    captured = Captured(*(str(fields.get(field, "")) for field in ("repository", "digest", "filesDigest")))
    return captured if all(map(_DIGEST.fullmatch, (captured.digest, captured.files_digest))) else None


def is_by_pod(setting: str, versions: ClusterVersions | None) -> bool:
    """Whether outputs are captured by Pods, and not by the controllers.

    Args:
        setting: `models.capture`.
        versions: of the cluster; None where the setting alone decides.
    """
    if setting == AUTO and versions is not None:
        return not volume.is_one_machine(versions)
    return setting == "job"


def next_step(
    version: Mapping[str, Any],
    model: Mapping[str, Any],
    observed: ObservedCapture,
    images: RuntimeImageSettings,
) -> CaptureStep:
    """Return the next step for a version whose job has succeeded.

    Args:
        version: the ModelVersion, which is not finished.
        model: its Model.
        observed: the jobs and their Pods.
        images: the settings of Slipway's own images.
    """
    policy, job = ModelSpec.model_validate(model.get("spec") or {}), observed.job
    if policy.registry is None:
        return _cannot_capture(
            job,
            "RegistryMissing",
            "the output is captured to a registry: set spec.registry of Model"
            f" {version['spec']['modelName']}",
        )
    if observed.pods and (captured := _result(observed.pods[0])) is not None:
        return _of_own_pod(job, captured, policy.registry.repository)
    if observed.capture is not None:
        return _follow(version, policy.registry.repository, observed, observed.capture, images)
    try:
        return _create(version, observed, policy, images)
    except errors.Permanent as error:
        return FailVersion(error.reason, str(error))


def _cannot_capture(job: TrainingJob, reason: str, message: str) -> WaitForSource | FailVersion:
    """Return the step for an output that cannot be captured: a user may correct that, or delete the job.

    The version waits, and the finalizer keeps the job. Once the job is being deleted, the version fails.
    """
    if is_deleting(job.object):
        return FailVersion(reason, f"{message}; {job_output.full_name(job.object)} was deleted")
    return WaitForSource(reason, message)


def _of_own_pod(job: TrainingJob, captured: Captured, repository: str) -> CaptureStep:
    """Return the step for an image that a container of the job's own Pod has pushed.

    Its repository must be the Model's: of a termination message, only digests are trusted.
    """
    if captured.repository != repository:
        return _cannot_capture(
            job,
            "OutputElsewhere",
            f"{job_output.full_name(job.object)} pushed its output to {captured.repository}, and not to"
            f" {repository} of its Model: {names.CAPTURE_REPOSITORY_ENV} and spec.registry.repository must be"
            " the same",
        )
    return BuildImage(job, f"{repository}@{captured.digest}")


def _create(
    version: Mapping[str, Any], observed: ObservedCapture, policy: ModelSpec, images: RuntimeImageSettings
) -> CaptureStep:
    job = observed.job
    output = _output(job, observed.pods)
    if not any(source in output.volume for source in capture_job.VOLUMES):
        return _cannot_capture(
            job,
            "OutputNotCaptured",
            f"the output was on volume {output.mount['name']}, which ends with its Pod: run the Job again"
            f" with the output on a {', '.join(capture_job.VOLUMES[:-1])} or {capture_job.VOLUMES[-1]}"
            f" volume, or with a container that captures it ({_SAMPLE})",
        )
    return CreateCapture(capture_job.render(capture_job.Capture(version, job.object, output, policy), images))


def _output(job: TrainingJob, pods: Sequence[Object]) -> job_output.JobOutput:
    """Return the output of the best Pod; once no Pod remains, the output of the best template of the job.

    A template with a hostPath is skipped, as it does not name the node that has the output.

    Raises:
        errors.Permanent: as `job_output.of_job`.
    """
    if not pods:
        for template in job.kind.templates(job.object):
            output = job_output.of_pod(job.object, template)
            if any(source in output.volume for source in capture_job.VOLUMES if source != "hostPath"):
                return output
    return job_output.of_job(job.object, pods)


def _follow(
    version: Mapping[str, Any],
    repository: str,
    observed: ObservedCapture,
    capture: Object,
    images: RuntimeImageSettings,
) -> CaptureStep:
    """Return the next step for a version that has the capture Job `capture`."""
    name = capture["metadata"]["name"]
    owners = capture["metadata"].get("ownerReferences") or []
    if not any(owner["uid"] == version["metadata"]["uid"] for owner in owners):
        return WaitForSource("CaptureNameTaken", f"Job {name} belongs to somebody else: delete it")
    if is_deleting(capture):
        return WaitForCapture(_WAITING, f"Job {name} of an earlier attempt is being deleted")
    if conditions.is_true(capture, "Complete"):
        pod = _succeeded(observed.capture_pods)
        captured = _result(pod) if pod is not None else None
        if captured is not None and captured.repository == repository:
            return BuildImage(observed.job, f"{repository}@{captured.digest}")
        problem = f"Job {name} has pushed no image to {repository} that its Pod reports"
        failure = CaptureFailed("CaptureLost", problem)
    elif conditions.is_true(capture, "Failed"):
        failure = _failure(capture, observed.capture_pods, images)
    else:
        return _running(observed, name, images)
    # The annotation has the number of failed attempts before this Job. While the version's status has the
    # same number, this failure is not counted yet.
    attempts_before = capture["metadata"].get("annotations", {}).get(names.ATTEMPT_ANNOTATION)
    is_counted = attempts_before != str(capture_job.attempts(version))
    return DiscardCapture(capture) if is_counted else failure


def _running(observed: ObservedCapture, name: str, images: RuntimeImageSettings) -> WaitForCapture:
    """Return the step while the capture Job `name` runs, with the problem of its newest Pod, if it has one.

    A Pod that has failed is no end: the Job starts another one.
    """
    message = f"Job {name} captures the output of {job_output.full_name(observed.job.object)}"
    newest = max(observed.capture_pods, key=_creation_key, default=None)
    if newest is None or (newest.get("status") or {}).get("phase") == "Succeeded":
        return WaitForCapture(_WAITING, message)
    problem = _problem(newest, images)
    if problem is None:
        return WaitForCapture(_WAITING, message)
    return WaitForCapture(problem.reason, f"{message}: {problem.message}")


def _failure(capture: Object, pods: Sequence[Object], images: RuntimeImageSettings) -> CaptureFailed:
    """Return why a capture Job has failed: the reason of its newest failed Pod, if one remains."""
    name = capture["metadata"]["name"]
    failed = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Failed"]
    newest = max(failed, key=_creation_key, default=None)
    problem = _problem(newest, images) if newest is not None else None
    if newest is None or problem is None:
        condition = conditions.find(capture["status"].get("conditions"), "Failed") or {}
        return CaptureFailed(_FAILED, f"Job {name}: {condition.get('message', 'failed')}")
    is_refused = any(ended.get("exitCode") == capture_job.REFUSED for ended in _terminated(newest))
    is_final = is_refused and problem.reason not in CORRECTABLE
    return CaptureFailed(problem.reason, f"Job {name}: {problem.message}", is_final)


def _creation_key(pod: Object) -> tuple[str, str]:
    """Return the key of an order in which the newest Pod is the largest; ties go by name."""
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _problem(pod: Object, images: RuntimeImageSettings) -> StatusReason | None:
    """Return why a Pod of a capture waits or has failed; None while it may only be slow."""
    status = pod["status"]
    problem = replicas.pod_problem(pod, images)
    if problem is None and status.get("reason"):  # evicted
        return StatusReason(str(status["reason"]), str(status.get("message", "")))
    if problem is not None and problem.reason == "CrashLoopBackOff":  # the program printed no `REASON: `
        return StatusReason(_FAILED, problem.message)
    return problem


def _succeeded(pods: Sequence[Object]) -> Object | None:
    """Return the newest Pod that has succeeded, if any."""
    ended = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Succeeded"]
    return max(ended, key=_creation_key, default=None)


def _terminated(pod: Object) -> list[Object]:
    """Return `state.terminated` of each of the Pod's containers that has ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return [ended for status in statuses if (ended := (status.get("state") or {}).get("terminated"))]


def _result(pod: Object) -> Captured | None:
    """Return the image that a termination message of the Pod reports, or None."""
    results = (decode(str(ended.get("message") or "")) for ended in _terminated(pod))
    return next(filter(None, results), None)
