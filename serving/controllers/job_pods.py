"""Lists the Pods of a Job."""

from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds

_JOB_LABEL = "batch.kubernetes.io/job-name"


async def of(kube: Kube, job: Object) -> list[Object]:
    """Return the Pods of this Job, and none of another Job that had its name."""
    meta = job["metadata"]
    listing = await kube.list(kinds.POD, meta["namespace"], labels=f"{_JOB_LABEL}={meta['name']}")
    return [
        pod
        for pod in listing.items
        if any(owner["uid"] == meta["uid"] for owner in pod["metadata"].get("ownerReferences") or [])
    ]
