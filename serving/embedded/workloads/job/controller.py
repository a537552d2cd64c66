"""Reconciles Jobs: reads one and its Pods, plans, writes the status, then creates and deletes Pods.

The status is written first, so that the end of a Job is decided once.
"""

import datetime as dt

from serving import clock
from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads import pods
from serving.embedded.workloads.job import plan, status
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import Informer, Key, Kube, Result
from serving.kube.cache import LIFETIME_SECONDS, Cache
from serving.objects import Object, is_deleting
from serving.resources import kinds, names
from serving.settings import NodeSettings


class JobController:
    """`reconcile` makes one step; a change of the Job or of its Pods causes the next."""

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
        """Converge one Job; the process may be killed between any two writes."""
        job = self._cache.get(kinds.JOB, *key)
        if job is None or is_deleting(job):
            return None
        await self._owned.confirm_writes(job)
        spec, now = plan.read_spec(job), clock.now()
        owned = self._pods(job)
        planned = plan.next_step(
            spec, plan.progress(job), owned, now, self._backoff, taken=self._owned.taken(job)
        )
        await self._report(job, status.report(job, spec, planned.progress, owned, now))
        for event in planned.events:
            self._events.add(job, event)
        await self._owned.delete(kinds.JOB, job, planned.delete)
        await self._owned.create(kinds.JOB, job, [self._pod(job, spec, n) for n in planned.start])
        if planned.remove_job:
            await self._kube.delete(kinds.JOB, key.namespace, key.name, uid=job["metadata"]["uid"])
            return None
        if planned.start or planned.delete:
            # Count these Pods without waiting for the watch.
            newest = self._cache.get(kinds.JOB, *key) or job
            if newest["metadata"]["uid"] != job["metadata"]["uid"]:
                return None  # another Job has the name; its arrival causes the next step
            job = newest
            await self._report(job, status.report(job, spec, planned.progress, self._pods(job), now))
        # A write that the watch never delivers expires in the cache, and no change of an object reports that:
        # this Job is looked at again then.
        expiry = dt.timedelta(seconds=LIFETIME_SECONDS) if self._owned.is_behind(job) else None
        due = [after for after in (planned.requeue_after, expiry) if after is not None]
        return Result(max(min(due).total_seconds(), 0.0)) if due else None

    def _pods(self, job: Object) -> list[pods.PodFacts]:
        return [pods.read(pod) for pod in self._owned.of(job)]

    def _pod(self, job: Object, spec: plan.JobSpec, attempt: int) -> Object:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        return pods.build(
            kinds.JOB,
            job,
            plan.attempt_name(spec, attempt),
            self._node,
            extra_labels=labels,
            annotations={names.ATTEMPT_ANNOTATION: str(attempt)},
        )

    async def _report(self, job: Object, report: Object) -> None:
        if (job.get("status") or {}) != report:
            self._cache.remember_write(kinds.JOB, await self._kube.apply_status(kinds.JOB, job, report))
