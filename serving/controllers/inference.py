"""The Inference controller: reads the caches, plans, carries the plan out, and reports.

The gateways apply its Routes (`serving.router.route_applier`). The cluster runs its Deployments, or on one
machine `serving.embedded.workloads.deployment.controller`.
A restart loses nothing: proofs are in the API, and a status that was delayed is planned again.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType

from serving import clock, errors
from serving.controllers.child_writer import ChildWriter
from serving.controllers.gateways import LiveGateways
from serving.controllers.put_backs import PutBacks
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Settling, VersionReader, Watches
from serving.kube.cache import Cache, controlling_owner_uids
from serving.kube.connection import answers
from serving.kube.node_versions import REFRESH_SECONDS
from serving.objects import Object, is_deleting, user_metadata
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.inference import children, planner, replicas
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import (
    Ensure,
    InferencePlan,
    PutBackTemplate,
    RemoveChild,
    SetFinalizers,
)
from serving.planning.models import volume as volumes
from serving.planning.models.retention import versions_of_deployment
from serving.planning.models.volume import AUTO, IMAGE, VolumeChoice
from serving.resources import kinds, names
from serving.resources.engine import Engine
from serving.resources.kinds import Kind
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.conditions import StatusReason
from serving.settings import DEFAULTS, ControllerSettings, RuntimeImageSettings

log = logging.getLogger(__name__)

_MODEL_VERSION = "model version"
"""Index of the Inferences by the ModelVersions that their specs name, and of the Deployments by those that
they serve: `NAMESPACE/NAME`."""
_REVISION = "revision"
"""Index of the Pods by the name of their revision: `NAMESPACE/NAME`."""
_ORPHAN = "orphan"
"""Index of the children without an owner by the Inference that their labels name: `NAMESPACE/NAME`."""
API_ANSWER_SECONDS = 1.0
"""Timeout of the check that the API answers. While it does not answer, no gateway is declared dead."""
_CHILDREN = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE)
_OF_REVISION = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.DAEMON_SET)
OPTIONAL_CHILDREN: Mapping[Kind, str] = {
    kinds.POD_DISRUPTION_BUDGET: "",
    kinds.DAEMON_SET: names.INFERENCE_LABEL,
}
"""Kinds of children that an API may not serve, and the label selectors of their watches. All budgets are
watched, as a budget of a user may have the name of a child; the name of a DaemonSet has a hash."""
_Refused = dict[tuple[Kind, str], StatusReason]
"""Kind and name of each child that the API has rejected in this reconcile → the reason."""


class InferenceController:
    """Reconciles all Inferences; one instance per process."""

    def __init__(
        self,
        kube: Kube,
        settings: ControllerSettings,
        watches: Watches,
        engines: Mapping[str, Engine] = MappingProxyType({}),
        *,
        images: RuntimeImageSettings = DEFAULTS.runtime_images,
        served: Collection[Kind] = (),
        volume: str = IMAGE.source,
    ) -> None:
        """Choose the informers and register handlers; `run` reconciles.

        Args:
            kube: the client of the API.
            settings: the settings of all controllers.
            watches: the informers of this process.
            engines: the inference engines that the installation knows, by name.
            images: the images of Slipway's own model servers.
            served: the kinds of `OPTIONAL_CHILDREN` that the API serves.
            volume: the setting `models.volume`.
        """
        self._kube = kube
        self._volume = volume
        self._cluster_versions = VersionReader(kube)
        self._images = images
        self._engines = engines
        self._settings = settings
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._inferences = watches.of(kinds.INFERENCE)
        self._versions = watches.of(kinds.MODEL_VERSION)
        self._leases = watches.of(kinds.LEASE, namespace=settings.lease_namespace)
        self._children = {kind: watches.of(kind) for kind in _CHILDREN}
        self._children |= {kind: watches.of(kind, labels=OPTIONAL_CHILDREN[kind]) for kind in served}
        self._pods = watches.of(kinds.POD, labels=names.INFERENCE_LABEL)
        self._loop = Reconciler("inference", self.reconcile, settings)
        self._gateways = LiveGateways(self._leases, self._add_all, self._api_answers)
        self._settling = Settling()
        """Inferences whose new status waits, and since when: further writes for one put its status off."""
        self._reported: dict[Key, Object] = {}
        """The last status that this controller has written, by Inference."""
        self._put_backs = PutBacks(settings.backoff_cap_seconds)
        self._cache = Cache(self._inferences, *self._children.values())
        self._writer = ChildWriter(kube, self._cache, self._recorder, self._put_backs, self._loop.add)
        self._watch()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gateways.run())
            informers = (self._inferences, self._versions, self._leases, self._pods, *self._children.values())
            group.create_task(self._loop.run(*informers))

    async def _api_answers(self) -> bool:
        try:
            async with asyncio.timeout(API_ANSWER_SECONDS):
                # One page of the list, however many Leases there are.
                path = kinds.LEASE.path(self._settings.lease_namespace)
                answers.json_object(await self._kube.raw(path, {"limit": "1"}), path)
        except (errors.ApiError, errors.Unavailable, TimeoutError):
            return False
        return True

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one Inference closer to its spec."""
        delay = await self._carry_out(key)
        waits = (delay, self._put_backs.seconds_left(key))
        return Result(min((wait for wait in waits if wait is not None), default=None))

    async def _carry_out(self, key: Key) -> float | None:
        """Carry out a plan; return the seconds until a delayed status, a refused write or a new look at the
        nodes is due, if any.
        """
        cluster: ClusterVersions | None = None
        # After the read, the Inference may be another one.
        while (inference := self._cache.get(kinds.INFERENCE, *key)) is not None and cluster is None:
            if self._volume != AUTO and not mechanisms.is_open_in(inference):
                break
            cluster = await self._cluster_versions.read()
        volume = volumes.choose(self._volume, cluster)
        if inference is None:
            self._settling.end(key)
            self._reported.pop(key, None)
            self._put_backs.forget(key)
            return None
        refused: _Refused = {}
        if not is_deleting(inference):
            await self._writer.adopt(inference, self._orphans_of(key))
            if not self._writer.is_current(inference):
                return None  # the deletion has a reconcile of its own
        plan = self._plan(inference, refused, volume, cluster)
        # A refused child is left out of the next plan, so that each turn of the loop has one child less.
        while not await self._act(inference, plan, refused):
            inference = self._cache.get(kinds.INFERENCE, *key) or inference
            if cluster is None and mechanisms.is_open_in(inference):
                return None  # its nodes are not known; the change has a reconcile of its own
            plan = self._plan(inference, refused, volume, cluster)
        seconds_left = await self._report(key, inference, plan)
        if seconds_left is None and refused:
            return self._settings.backoff_cap_seconds
        if seconds_left is None and plan.waits_for_gpu_nodes:
            return REFRESH_SECONDS
        return seconds_left

    def _orphans_of(self, key: Key) -> list[tuple[Kind, Object]]:
        return [
            (kind, orphan)
            for kind, informer in self._children.items()
            for orphan in informer.by_index(_ORPHAN, str(key))
        ]

    async def _report(self, key: Key, inference: Object, plan: InferencePlan) -> float | None:
        """Write the status and emit the Events.

        If the status may wait and has not waited long enough, write nothing and return the remaining seconds.
        """
        if plan.status is None:
            self._settling.end(key)
            return None
        if plan.status_may_wait:
            if plan.actions:
                self._settling.put_off(key)
            seconds_left = self._settling.seconds_left(key, self._settings.status_settle_seconds)
            if seconds_left > 0:
                return seconds_left
        self._reported[key] = plan.status
        written = await self._kube.replace_status(kinds.INFERENCE, inference, plan.status)
        self._cache.remember_write(kinds.INFERENCE, written)
        self._settling.end(key)
        for event in plan.events:
            await self._recorder.emit(inference, event.reason, event.message, event.type)
        return None

    def _plan(
        self, inference: Object, refused: _Refused, volume: VolumeChoice, cluster: ClusterVersions | None
    ) -> InferencePlan:
        observed = self._observe(inference, refused, volume, cluster or ClusterVersions())
        return planner.plan(observed, clock.rfc3339(clock.now()))

    async def _act(self, inference: Object, plan: InferencePlan, refused: _Refused) -> bool:
        """Do the plan's writes. If the API refuses a child, add the child to `refused` and return False:
        the rest needs another plan.

        A refusal of one child must not block the others: the API validates the containers of a user only when
        it gets the Deployment that has them. The deletion of an Inference has an order, which a refusal must
        not change: there every error is raised.
        """
        for action in plan.actions:
            try:
                await self._writer.carry_out(inference, action)
            except (errors.ApiError, errors.Permanent) as error:
                is_refusal = isinstance(error, errors.Permanent) or errors.is_refusal(error)
                if isinstance(action, SetFinalizers) or is_deleting(inference) or not is_refusal:
                    raise
                kind, name = _child_of(action)
                log.info("Inference %s: %s %s was refused: %s", Key.of(inference), kind.kind, name, error)
                refused[kind, name] = _reason(kind, name, error)
                if isinstance(action, RemoveChild):
                    message = f"{kind.kind} {name} cannot be deleted: {error}"
                    await self._recorder.emit(inference, "RemovalRefused", message, "Warning")
                return False
        return True

    def _observe(
        self, inference: Object, refused: _Refused, volume: VolumeChoice, cluster: ClusterVersions
    ) -> ObservedObjects:
        meta = inference["metadata"]
        namespace = meta["namespace"]
        predictors = inference["spec"].get("predictors") or []
        route = self._cache.get(kinds.ROUTE, namespace, meta["name"])
        deployments = self._cache.owned(kinds.DEPLOYMENT, inference)
        in_spec = {predictor["modelVersion"] for predictor in predictors}
        version_names = in_spec.union(*map(versions_of_deployment, deployments.values()))
        versions = {name: self._versions.get(namespace, name) for name in sorted(version_names)}
        return ObservedObjects(
            inference=inference,
            model_versions={name: version for name, version in versions.items() if version is not None},
            deployments=deployments,
            services=self._cache.owned(kinds.SERVICE, inference),
            autoscalers=self._cache.owned(kinds.AUTOSCALER, inference),
            budgets=self._optional(kinds.POD_DISRUPTION_BUDGET, inference),
            daemon_sets=self._optional(kinds.DAEMON_SET, inference),
            route=route if route is not None and meta["uid"] in controlling_owner_uids(route) else None,
            gateways=self._gateways.alive,
            gateway_problems=self._gateways.problems,
            field_manager=self._kube.field_manager,
            put_back_blocked=self._put_backs.blocked(Key(namespace, meta["name"]), deployments),
            put_back_in_vain=self._put_backs.in_vain(Key(namespace, meta["name"]), deployments),
            pods={name: self._pods.by_index(_REVISION, f"{namespace}/{name}") for name in deployments},
            engines=self._engines,
            runtime_images=self._images,
            model_volume=volume,
            cluster=cluster,
            refused=_messages(refused, kinds.DEPLOYMENT),
            prefetch_refused=_messages(refused, kinds.DAEMON_SET),
            children_refused=dict(refused),
        )

    def _optional(self, kind: Kind, inference: Object) -> Mapping[str, Object] | None:
        """Return the children of an optional kind by name; None if the API does not serve the kind."""
        return self._cache.owned(kind, inference) if kind in self._children else None

    def _watch(self) -> None:
        self._inferences.index(_MODEL_VERSION, _model_versions)
        self._children[kinds.DEPLOYMENT].index(_MODEL_VERSION, _served_versions)
        self._cache.on_news(kinds.INFERENCE, self._inference_changed)
        self._versions.on_change(self._version_changed)
        for kind, informer in self._children.items():
            informer.index(_ORPHAN, _orphaned_by)
            self._cache.on_news(kind, self._child_changed)
        self._pods.index(_REVISION, _revision)
        self._pods.on_change(self._pod_changed)

    def _inference_changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile, unless the change is only the status that this controller has written."""
        if before is None or after is None or user_metadata(before) != user_metadata(after):
            self._loop.add(Key.of(after or before or {}))
        elif after.get("status") != self._reported.get(Key.of(after)):
            self._loop.add(Key.of(after))

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile if the reason why the Pod is not ready has changed.

        Other changes of a Pod do not matter: the Deployment's status has the number of ready Pods.
        """
        if self._unready_reason(before) == self._unready_reason(after):
            return
        meta = (after or before or {})["metadata"]
        self._add_soon(Key(meta["namespace"], meta["labels"][names.INFERENCE_LABEL]))

    def _unready_reason(self, pod: Object | None) -> StatusReason | None:
        if pod is None:
            return None
        return replicas.pod_problem(pod, self._images) or replicas.copying(pod)

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        version = str(Key.of(after or before or {}))
        for inference in self._inferences.by_index(_MODEL_VERSION, version):
            self._loop.add(Key.of(inference))
        for deployment in self._children[kinds.DEPLOYMENT].by_index(_MODEL_VERSION, version):
            self._child_changed(None, deployment)

    def _child_changed(self, before: Object | None, after: Object | None) -> None:
        for child in (before, after):
            meta = child["metadata"] if child is not None else {}
            for owner in meta.get("ownerReferences") or []:
                if owner.get("kind") == kinds.INFERENCE.kind:
                    self._add_soon(Key(meta["namespace"], owner["name"]))

    def _add_soon(self, key: Key) -> None:
        """Reconcile once for each burst of changes of children."""
        self._loop.add_after(key, self._settings.gather_seconds)

    def _add_all(self) -> None:
        for inference in self._inferences:
            self._loop.add(Key.of(inference))


def _child_of(action: Ensure | PutBackTemplate | RemoveChild) -> tuple[Kind, str]:
    """Return the kind and the name of the child that an action writes."""
    match action:
        case Ensure():
            return action.kind, action.object["metadata"]["name"]
        case PutBackTemplate():
            return kinds.DEPLOYMENT, action.name
        case RemoveChild():
            return action.kind, action.name


def _reason(kind: Kind, name: str, error: errors.ApiError | errors.Permanent) -> StatusReason:
    if kind in _OF_REVISION:
        return StatusReason("RevisionRefused", str(error))  # the arm's reason, which names the revision
    if isinstance(error, errors.Permanent):
        return StatusReason(error.reason, str(error))
    return StatusReason(f"{kind.kind}Refused", f"{kind.kind} {name} was refused: {error}")


def _messages(refused: _Refused, kind: Kind) -> dict[str, str]:
    return {name: why.message for (refused_kind, name), why in refused.items() if refused_kind is kind}


def _orphaned_by(child: Object) -> list[str]:
    name = children.orphan_of(child)
    return [] if name is None else [str(Key(child["metadata"]["namespace"], name))]


def _revision(pod: Object) -> list[str]:
    meta = pod["metadata"]
    return [f"{meta['namespace']}/{meta['labels'].get(names.REVISION_LABEL, '')}"]


def _served_versions(deployment: Object) -> list[str]:
    namespace = deployment["metadata"]["namespace"]
    return [str(Key(namespace, version)) for version in versions_of_deployment(deployment)]


def _model_versions(inference: Object) -> list[str]:
    namespace = inference["metadata"]["namespace"]
    return [str(Key(namespace, p["modelVersion"])) for p in inference["spec"].get("predictors") or []]
