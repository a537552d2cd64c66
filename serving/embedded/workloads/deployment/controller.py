"""Reconciles Deployments: reads one and its Pods, plans, creates and deletes Pods, writes the status."""

import datetime as dt

from serving import clock, errors
from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads import naming, pods
from serving.embedded.workloads.deployment import plan, standby, status
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import Informer, Key, Kube, Result, Settling
from serving.kube.cache import LIFETIME_SECONDS, Cache
from serving.objects import Object, is_deleting
from serving.resources import kinds, names
from serving.resources.kubernetes.events import EventToEmit
from serving.settings import Settings


class DeploymentController:
    """`reconcile` makes one step; a change of the Deployment or of its Pods causes the next."""

    def __init__(
        self,
        kube: Kube,
        informer: Informer,
        owned: OwnedPods,
        events: EventQueue,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._cache = Cache(informer)
        self._owned = owned
        self._events = events
        self._node = settings.node.name
        self._settle_seconds = settings.controllers.status_settle_seconds
        self._settling = Settling()
        """Deployments whose stored status is outdated."""

    async def reconcile(self, key: Key) -> Result | None:
        """Converge one Deployment; the process may be killed between any two writes."""
        deployment = self._cache.get(kinds.DEPLOYMENT, *key)
        if deployment is None or is_deleting(deployment):
            self._settling.end(key)
            return None
        await self._owned.confirm_writes(deployment)
        spec = plan.read_spec(deployment)
        await self._number_revision(deployment, spec)
        now = clock.now()
        serving, standbys = self._pods(deployment)
        planned = plan.next_pods(
            spec,
            serving,
            now,
            rolled_out=_annotation(deployment, names.TEMPLATE_HASH_ANNOTATION),
            taken=self._owned.taken(deployment) | {p.name for p in standbys},
        )
        standby_plan = standby.next_standbys(
            standbys,
            spec,
            now,
            kept=standby.count(deployment),
            needed=len(planned.create),
            settled=all(p.available(spec.min_ready_seconds, now) for p in serving if p.active),
        )
        failure = await self._act(deployment, spec, planned, standby_plan)
        report = status.report(
            deployment,
            spec,
            self._pods(deployment)[0],
            now,
            failure=failure.message if failure else "",
        )
        written_after = await self._write(key, deployment, report)
        if failure is not None:
            raise errors.Temporary("FailedCreate", failure.message) from failure
        # A write that the watch never delivers expires in the cache after this time, without a change.
        expiry = dt.timedelta(seconds=LIFETIME_SECONDS) if self._owned.is_behind(deployment) else None
        times = (
            planned.requeue_after,
            standby_plan.requeue_after,
            report.requeue_after,
            written_after,
            expiry,
        )
        due = [after for after in times if after is not None]
        return Result(max(min(due).total_seconds(), 0.0)) if due else None

    def _pods(self, deployment: Object) -> tuple[list[pods.PodFacts], list[pods.PodFacts]]:
        """Return (replicas, standby Pods)."""
        owned = [pods.read(pod) for pod in self._owned.of(deployment)]
        return [p for p in owned if not p.standby], [p for p in owned if p.standby]

    async def _number_revision(self, deployment: Object, spec: plan.DeploymentSpec) -> None:
        """Number a new template before its first Pod, once: the API refuses a write from a stale read."""
        if spec.paused or _annotation(deployment, names.TEMPLATE_HASH_ANNOTATION) == spec.template_hash:
            return
        meta = deployment["metadata"]
        before = _annotation(deployment, names.REVISION_ANNOTATION)
        annotations = {
            names.REVISION_ANNOTATION: str(int(before) + 1 if before.isdecimal() else 1),
            names.TEMPLATE_HASH_ANNOTATION: spec.template_hash,
        }
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": annotations}}
        updated = await self._kube.patch(kinds.DEPLOYMENT, meta["namespace"], meta["name"], patch)
        self._cache.remember_write(kinds.DEPLOYMENT, updated)

    async def _act(
        self,
        deployment: Object,
        spec: plan.DeploymentSpec,
        planned: plan.DeploymentPlan,
        standby_plan: standby.StandbyPlan,
    ) -> errors.ApiError | None:
        """Promote, delete and create Pods; return the API's refusal of a creation, if any."""
        await self._promote(deployment, standby_plan.promote)
        await self._owned.delete(kinds.DEPLOYMENT, deployment, (*planned.delete, *standby_plan.delete))
        extra = {names.POD_TEMPLATE_HASH_LABEL: spec.template_hash}
        # Each promoted standby Pod takes the place of one Pod to create.
        names_to_create = planned.create[len(standby_plan.promote) :]
        bodies = [
            pods.build(kinds.DEPLOYMENT, deployment, name, self._node, extra_labels=extra)
            for name in names_to_create
        ]
        extra = {**extra, names.STANDBY_LABEL: "true"}
        bodies += [
            pods.build(kinds.DEPLOYMENT, deployment, name, self._node, extra_labels=extra)
            for name in self._free_names(deployment, spec, standby_plan.create)
        ]
        try:
            await self._owned.create(kinds.DEPLOYMENT, deployment, bodies)
        except (errors.Invalid, errors.Forbidden) as error:
            self._events.add(deployment, EventToEmit("FailedCreate", f"Error creating: {error}", "Warning"))
            return error
        return None

    async def _promote(self, deployment: Object, chosen: tuple[pods.PodFacts, ...]) -> None:
        """Make standby Pods replicas; the next reconcile replaces a standby Pod that is gone."""
        for pod in chosen:
            await self._owned.patch(deployment, pod, {"labels": {names.STANDBY_LABEL: None}})

    def _free_names(self, deployment: Object, spec: plan.DeploymentSpec, count: int) -> list[str]:
        taken = self._owned.taken(deployment) | {p["metadata"]["name"] for p in self._owned.of(deployment)}
        stem = f"{spec.name}-{spec.template_hash}"
        return naming.free_names(stem, f"{spec.uid}/{spec.template_hash}", taken, count)

    async def _write(self, key: Key, deployment: Object, report: status.StatusReport) -> dt.timedelta | None:
        """Write the status; if it is too early for that, return the time to wait."""
        before = deployment.get("status") or {}
        if before != report.status and status.may_wait(before, report.status):
            left = self._settling.seconds_left(key, self._settle_seconds)
            if left > 0:
                return dt.timedelta(seconds=left)
        self._settling.end(key)
        if before == report.status:
            return None
        answer = await self._kube.apply_status(kinds.DEPLOYMENT, deployment, report.status)
        self._cache.remember_write(kinds.DEPLOYMENT, answer)
        if report.exceeded and not status.has_exceeded(before):
            message = "The rollout made no progress within progressDeadlineSeconds"
            self._events.add(deployment, EventToEmit(status.EXCEEDED, message, "Warning"))
        return None


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))
