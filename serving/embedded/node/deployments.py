"""Deployments: read one and its Pods, plan, create and delete, report."""

import datetime as dt

from serving import clock, errors
from serving.embedded.node.event_queue import EventQueue, Told
from serving.embedded.node.freshest import Freshest
from serving.embedded.node.owned_pods import FORGET_SECONDS, OwnedPods
from serving.embedded.workloads import deployment_status, deployments, pods
from serving.kube import Informer, Key, Kube, Result
from serving.resources import kinds, names

Object = pods.Object


class DeploymentController:
    """`reconcile` makes one step; what it waits for comes as a change of the Deployment or of its Pods."""

    def __init__(
        self, kube: Kube, informer: Informer, owned: OwnedPods, events: EventQueue, node: str
    ) -> None:
        self._kube = kube
        self._deployments = Freshest(informer)
        self._owned = owned
        self._events = events
        self._node = node

    async def reconcile(self, key: Key) -> Result | None:
        """Converge one Deployment; safe to be killed between any two writes."""
        deployment = self._deployments.get(key)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return None
        await self._owned.settle(deployment)
        want = deployments.wanted(deployment)
        await self._number_revision(deployment, want)
        now = clock.now()
        planned = deployments.plan(
            want, self._pods(deployment), now,
            rolled_out=_annotation(deployment, names.TEMPLATE_HASH_ANNOTATION),
            taken=self._owned.taken(deployment),
        )  # fmt: skip
        failure = await self._act(deployment, want, planned)
        report = deployment_status.report(
            deployment, want, self._pods(deployment), now,
            failure=failure.message if failure else "",
        )  # fmt: skip
        await self._write(deployment, report)
        if failure is not None:
            raise errors.Temporary("FailedCreate", failure.message) from failure
        waits = dt.timedelta(seconds=FORGET_SECONDS) if self._owned.waits(deployment) else None
        due = [after for after in (planned.requeue_after, report.requeue_after, waits) if after is not None]
        return Result(max(min(due).total_seconds(), 0.0)) if due else None

    def _pods(self, deployment: Object) -> list[pods.PodState]:
        return [pods.read(pod) for pod in self._owned.of(deployment)]

    async def _number_revision(self, deployment: Object, want: deployments.Wanted) -> None:
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
        self._deployments.wrote(answer)

    async def _act(
        self, deployment: Object, want: deployments.Wanted, planned: deployments.Plan
    ) -> errors.ApiError | None:
        """Delete and create; return why a Pod was refused, if one was."""
        await self._owned.delete(kinds.DEPLOYMENT, deployment, planned.delete)
        extra = {names.POD_TEMPLATE_HASH_LABEL: want.template_hash}
        bodies = [
            pods.build(kinds.DEPLOYMENT, deployment, name, self._node, extra_labels=extra)
            for name in planned.create
        ]
        try:
            await self._owned.create(kinds.DEPLOYMENT, deployment, bodies)
        except (errors.Invalid, errors.Forbidden) as error:
            self._events.tell(deployment, Told("FailedCreate", f"Error creating: {error}", "Warning"))
            return error
        return None

    async def _write(self, deployment: Object, report: deployment_status.Report) -> None:
        before = deployment.get("status") or {}
        if before == report.status:
            return
        self._deployments.wrote(await self._kube.apply_status(kinds.DEPLOYMENT, deployment, report.status))
        if report.exceeded and not deployment_status.has_exceeded(before):
            message = "The rollout made no progress within progressDeadlineSeconds"
            self._events.tell(deployment, Told(deployment_status.EXCEEDED, message, "Warning"))


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))
