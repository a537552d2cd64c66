"""Deployments: read one and its Pods, plan, create and delete, report."""

import contextlib
import datetime as dt

from serving import clock, errors
from serving.embedded.event_queue import EventQueue, Told
from serving.embedded.workloads import naming, pods
from serving.embedded.workloads.deployment import plan, standby, status
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import Informer, Key, Kube, Result
from serving.kube.cache import LIFETIME_SECONDS, Cache
from serving.objects import Object
from serving.resources import kinds, names


class DeploymentController:
    """`reconcile` makes one step; what it waits for comes as a change of the Deployment or of its Pods."""

    def __init__(
        self, kube: Kube, informer: Informer, owned: OwnedPods, events: EventQueue, node: str
    ) -> None:
        self._kube = kube
        self._cache = Cache(informer)
        self._owned = owned
        self._events = events
        self._node = node

    async def reconcile(self, key: Key) -> Result | None:
        """Converge one Deployment; safe to be killed between any two writes."""
        deployment = self._cache.get(kinds.DEPLOYMENT, *key)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return None
        await self._owned.settle(deployment)
        want = plan.wanted(deployment)
        await self._number_revision(deployment, want)
        now = clock.now()
        serving, standbys = self._pods(deployment)
        planned = plan.plan(
            want, serving, now,
            rolled_out=_annotation(deployment, names.TEMPLATE_HASH_ANNOTATION),
            taken=self._owned.taken(deployment) | {p.name for p in standbys},
        )  # fmt: skip
        reserve = standby.plan(
            standbys, want, now, kept=standby.count(deployment), needed=len(planned.create),
            settled=all(p.available(want.min_ready_seconds, now) for p in serving if p.active),
        )  # fmt: skip
        failure = await self._act(deployment, want, planned, reserve)
        report = status.report(
            deployment, want, self._pods(deployment)[0], now,
            failure=failure.message if failure else "",
        )  # fmt: skip
        await self._write(deployment, report)
        if failure is not None:
            raise errors.Temporary("FailedCreate", failure.message) from failure
        waits = dt.timedelta(seconds=LIFETIME_SECONDS) if self._owned.is_behind(deployment) else None
        looks = (planned.requeue_after, reserve.requeue_after, report.requeue_after, waits)
        due = [after for after in looks if after is not None]
        return Result(max(min(due).total_seconds(), 0.0)) if due else None

    def _pods(self, deployment: Object) -> tuple[list[pods.PodState], list[pods.PodState]]:
        """Return the replicas, and the standby Pods."""
        found = [pods.read(pod) for pod in self._owned.of(deployment)]
        return [p for p in found if not p.standby], [p for p in found if p.standby]

    async def _number_revision(self, deployment: Object, want: plan.Wanted) -> None:
        """Count a new template before its first Pod; a stale read is refused, lest it is counted twice."""
        if want.paused or _annotation(deployment, names.TEMPLATE_HASH_ANNOTATION) == want.template_hash:
            return
        meta = deployment["metadata"]
        before = _annotation(deployment, names.REVISION_ANNOTATION)
        annotations = {
            names.REVISION_ANNOTATION: str(int(before) + 1 if before.isdecimal() else 1),
            names.TEMPLATE_HASH_ANNOTATION: want.template_hash,
        }
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": annotations}}
        answer = await self._kube.patch(kinds.DEPLOYMENT, meta["namespace"], meta["name"], patch)
        self._cache.wrote(kinds.DEPLOYMENT, answer)

    async def _act(
        self, deployment: Object, want: plan.Wanted, planned: plan.Plan, reserve: standby.Plan
    ) -> errors.ApiError | None:
        """Promote, delete and create; return why a Pod was refused, if one was."""
        await self._promote(deployment, reserve.promote)
        await self._owned.delete(kinds.DEPLOYMENT, deployment, (*planned.delete, *reserve.delete))
        extra = {names.POD_TEMPLATE_HASH_LABEL: want.template_hash}
        bodies = [
            pods.build(kinds.DEPLOYMENT, deployment, name, self._node, extra_labels=extra)
            for name in planned.create[len(reserve.promote) :]
        ]
        extra = {**extra, names.STANDBY_LABEL: "true"}
        bodies += [
            pods.build(kinds.DEPLOYMENT, deployment, name, self._node, extra_labels=extra)
            for name in self._free_names(deployment, want, reserve.create)
        ]
        try:
            await self._owned.create(kinds.DEPLOYMENT, deployment, bodies)
        except (errors.Invalid, errors.Forbidden) as error:
            self._events.tell(deployment, Told("FailedCreate", f"Error creating: {error}", "Warning"))
            return error
        return None

    async def _promote(self, deployment: Object, chosen: tuple[pods.PodState, ...]) -> None:
        """Let standby Pods be replicas; one that has gone meanwhile is missed at the next look."""
        for pod in chosen:
            patch = {"metadata": {"uid": pod.uid, "labels": {names.STANDBY_LABEL: None}}}
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._kube.patch(kinds.POD, deployment["metadata"]["namespace"], pod.name, patch)

    def _free_names(self, deployment: Object, want: plan.Wanted, count: int) -> list[str]:
        taken = self._owned.taken(deployment) | {p["metadata"]["name"] for p in self._owned.of(deployment)}
        stem = f"{want.name}-{want.template_hash}"
        return naming.free_names(stem, f"{want.uid}/{want.template_hash}", taken, count)

    async def _write(self, deployment: Object, report: status.Report) -> None:
        before = deployment.get("status") or {}
        if before == report.status:
            return
        answer = await self._kube.apply_status(kinds.DEPLOYMENT, deployment, report.status)
        self._cache.wrote(kinds.DEPLOYMENT, answer)
        if report.exceeded and not status.has_exceeded(before):
            message = "The rollout made no progress within progressDeadlineSeconds"
            self._events.tell(deployment, Told(status.EXCEEDED, message, "Warning"))


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))
