"""The Pods that may have the output of a training job, by the rules of its kind."""

from serving.kube import Kube
from serving.objects import Object
from serving.planning.models.job_kind import TrainingJob
from serving.resources import kinds


async def with_output(kube: Kube, job: TrainingJob) -> list[Object]:
    """Return those Pods of a job that has succeeded which may have its output, the best first."""
    selector = job.kind.pod_selector(job.object)
    if not selector:
        return []
    listing = await kube.list(kinds.POD, job.object["metadata"]["namespace"], labels=selector)
    return job.kind.with_output(job.object, listing.items)
