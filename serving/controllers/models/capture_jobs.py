"""The Jobs that capture the outputs of other Jobs on a cluster: reads the planner's inputs, and writes."""

from serving import errors
from serving.controllers.models import job_pods
from serving.kube import Informer, Kube, VersionReader
from serving.objects import Object, is_deleting
from serving.planning.models import capture, capture_job
from serving.planning.models.capture import CaptureStep, ObservedCapture
from serving.planning.models.job_kind import TrainingJob
from serving.planning.models.volume import AUTO
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import Settings


class CaptureJobs:
    """One per process."""

    def __init__(self, kube: Kube, jobs: Informer, settings: Settings) -> None:
        self._kube = kube
        self._jobs = jobs
        self._cluster = VersionReader(kube)
        self._setting = settings.models.capture
        self._images = settings.runtime_images

    async def are_by_pod(self) -> bool:
        """Whether outputs are captured by Pods, and not by this process.

        Raises:
            errors.ApiError, errors.Unavailable: the nodes have not been read yet.
        """
        cluster_versions = await self._cluster.read() if self._setting == AUTO else None
        return capture.is_by_pod(self._setting, cluster_versions)

    async def next_step(self, version: Object, job: TrainingJob, model: Object) -> CaptureStep:
        """Return the next step for the `version` of a training job that has succeeded."""
        existing = self._capture_job(version)
        existing_pods = await job_pods.of(self._kube, existing) if existing is not None else []
        pods = await job_pods.with_output(self._kube, job)
        observed = ObservedCapture(job, pods, existing, existing_pods)
        return capture.next_step(version, model, observed, self._images)

    async def create(self, job: Object) -> str:
        """Create a capture Job; return the API's message if the API refuses the Job, else an empty string."""
        try:
            await self._kube.create(kinds.JOB, job)
        except errors.AlreadyExists:
            return ""  # by an earlier attempt whose response was lost; the watch brings it
        except (errors.Invalid, errors.Forbidden) as error:
            return str(error)
        return ""

    async def discard(self, version: Object, *, keep_ended: bool = False) -> None:
        """Delete the capture Job of a version, if there is one; with `keep_ended` only while the Job runs.

        A Job of another owner that has the capture Job's name is kept.
        """
        job = self._capture_job(version)
        if job is None or is_deleting(job) or (keep_ended and _has_ended(job)):
            return
        meta = job["metadata"]
        if any(owner["uid"] == version["metadata"]["uid"] for owner in meta.get("ownerReferences") or []):
            await self._kube.delete(kinds.JOB, meta["namespace"], meta["name"], uid=meta["uid"])

    def _capture_job(self, version: Object) -> Object | None:
        """Return the Job with the capture's name, of any owner: the planner reports a foreign one."""
        return self._jobs.get(version["metadata"]["namespace"], capture_job.name(version))


def _has_ended(job: Object) -> bool:
    return conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed")
