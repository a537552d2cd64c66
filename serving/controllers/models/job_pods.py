"""Lists the Pods of jobs."""

from serving.kube import Kube
from serving.objects import Object
from serving.planning.models.job_kind import TrainingJob
from serving.resources import kinds

_JOB_LABEL = "batch.kubernetes.io/job-name"


async def with_output(kube: Kube, job: TrainingJob) -> list[Object]:
    """Return those Pods of a job that has succeeded which may have its output, the best first."""
    selector = job.kind.pod_selector(job.object)
    if not selector:
        return []
    listing = await kube.list(kinds.POD, job.object["metadata"]["namespace"], labels=selector)
    return job.kind.with_output(job.object, listing.items)


async def of(kube: Kube, job: Object) -> list[Object]:
    """Return the Pods of this Job, and none of another Job that had its name."""
    meta = job["metadata"]
    listing = await kube.list(kinds.POD, meta["namespace"], labels=f"{_JOB_LABEL}={meta['name']}")
    return [
        pod
        for pod in listing.items
        if any(owner["uid"] == meta["uid"] for owner in pod["metadata"].get("ownerReferences") or [])
    ]
