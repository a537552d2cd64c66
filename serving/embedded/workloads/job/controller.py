"""Jobs: read one and its Pods, plan, report, then start and end Pods.

The status is written first: an ending is decided once and stands, whatever happens to the Pods afterwards.
"""

import datetime as dt

from serving import clock
from serving.embedded.event_queue import EventQueue, Told
from serving.embedded.workloads import pods
from serving.embedded.workloads.job import plan, status
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import Informer, Key, Kube, Result
from serving.kube.cache import LIFETIME_SECONDS, Cache
from serving.objects import Object
from serving.resources import kinds, names
from serving.settings import NodeSettings


class JobController:
    """`reconcile` makes one step; what it waits for comes as a change of the Job or of its Pods."""

    def __init__(
        self, kube: Kube, informer: Informer, owned: OwnedPods, events: EventQueue, settings: NodeSettings
    ) -> None:
        self._kube = kube
        self._cache = Cache(informer)
        self._owned = owned
        self._events = events
        self._node = settings.name
        self._backoff = plan.Backoff(settings.backoff_base_seconds, settings.backoff_cap_seconds)

    async def reconcile(self, key: Key) -> Result | None:
        """Converge one Job; safe to be killed between any two writes."""
        job = self._cache.get(kinds.JOB, *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return None
        await self._owned.settle(job)
        want, now = plan.wanted(job), clock.now()
        found = self._pods(job)
        planned = plan.plan(want, plan.progress(job), found, now, self._backoff)
        await self._report(job, status.report(job, want, planned.progress, found, now))
        for reason, message, warns in planned.events:
            self._events.tell(job, Told(reason, message, "Warning" if warns else "Normal"))
        await self._owned.delete(kinds.JOB, job, planned.delete)
        await self._owned.create(kinds.JOB, job, [self._pod(job, want, n) for n in planned.start])
        if planned.remove_job:
            await self._kube.delete(kinds.JOB, key.namespace, key.name, uid=job["metadata"]["uid"])
            return None
        if planned.start or planned.delete:
            # The watch will tell of these Pods; the counts need not wait for it.
            job = self._cache.get(kinds.JOB, *key) or job
            await self._report(job, status.report(job, want, planned.progress, self._pods(job), now))
        waits = dt.timedelta(seconds=LIFETIME_SECONDS) if self._owned.is_behind(job) else None
        due = [after for after in (planned.requeue_after, waits) if after is not None]
        return Result(max(min(due).total_seconds(), 0.0)) if due else None

    def _pods(self, job: Object) -> list[pods.PodState]:
        return [pods.read(pod) for pod in self._owned.of(job)]

    def _pod(self, job: Object, want: plan.Wanted, attempt: int) -> Object:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        own = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        return pods.build(
            kinds.JOB, job, plan.attempt_name(want, attempt), self._node,
            extra_labels=own, annotations={names.ATTEMPT_ANNOTATION: str(attempt)},
        )  # fmt: skip

    async def _report(self, job: Object, report: Object) -> None:
        if (job.get("status") or {}) != report:
            self._cache.wrote(kinds.JOB, await self._kube.apply_status(kinds.JOB, job, report))
