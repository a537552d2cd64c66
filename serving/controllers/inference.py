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
from serving.controllers.gateways import LiveGateways
from serving.controllers.put_backs import PutBacks
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Settling, VersionReader, Watches
from serving.kube.cache import Cache, owner_uids
from serving.kube.connection.client import JSON_PATCH
from serving.kube.node_versions import REFRESH_SECONDS
from serving.objects import Object, is_deleting
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.gpu import pod as gpu_pod
from serving.planning.inference import children, planner, replicas
from serving.planning.inference.comparison import template_edits
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import (
    Action,
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
_REFUSALS = (400, 403, 422)
"""Status codes that reject one object: it cannot be decoded, a quota, a webhook or a right forbids it, or it
breaks a rule. Other objects may be written."""
_TERMINATING = "NamespaceTerminating"
"""Cause of a refusal of every new object, as the namespace is being deleted."""
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
                await self._kube.raw(kinds.LEASE.path(self._settings.lease_namespace), {"limit": "1"})
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
            await self._adopt(inference)
            if not self._is_current(inference):
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

    async def _adopt(self, inference: Object) -> None:
        """Become the owner of the children that `kubectl delete --cascade=orphan` of an Inference of this
        name has kept: their Route has the proofs and the ring, so that the new Inference serves at once.
        """
        for kind, informer in self._children.items():
            for orphan in informer.by_index(_ORPHAN, str(Key.of(inference))):
                key = Key.of(orphan)
                current = self._cache.get(kind, *key)
                if current is None or children.orphan_of(current) is None or is_deleting(current):
                    continue
                if not self._is_current(inference):
                    return  # deleted meanwhile, perhaps with its children as orphans
                meta = current["metadata"]
                owners = [*(meta.get("ownerReferences") or []), children.owner_reference(inference)]
                patch = {"metadata": {"ownerReferences": owners, "resourceVersion": meta["resourceVersion"]}}
                try:
                    if kind is kinds.DEPLOYMENT and gpu_pod.has_claim(current["spec"]["template"], key.name):
                        await self._adopt_claim_template(inference, key)
                    self._cache.remember_write(kind, await self._kube.patch(kind, *key, patch))
                except errors.ApiError as error:
                    if not _is_refusal(error):
                        raise
                    log.info("%s %s is not adopted: %s", kind.kind, key, error)

    async def _adopt_claim_template(self, inference: Object, key: Key) -> None:
        """Become the only owner of a revision's ResourceClaimTemplate, which nobody watches or may read."""
        patch = {"metadata": {"ownerReferences": [children.owner_reference(inference)]}}
        try:
            await self._kube.patch(kinds.RESOURCE_CLAIM_TEMPLATE, *key, patch)
        except errors.NotFound:
            log.warning("Deployment %s needs a ResourceClaimTemplate of its name, which is gone", key)

    def _is_current(self, inference: Object) -> bool:
        """Whether this Inference exists still, and is not being deleted."""
        current = self._cache.get(kinds.INFERENCE, *Key.of(inference))
        uid = inference["metadata"]["uid"]
        return current is not None and current["metadata"]["uid"] == uid and not is_deleting(current)

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
                await self._do(inference, action)
            except (errors.ApiError, errors.Permanent) as error:
                if isinstance(action, SetFinalizers) or is_deleting(inference) or not _is_refusal(error):
                    raise
                kind, name = _child_of(action)
                log.info("Inference %s: %s %s was refused: %s", Key.of(inference), kind.kind, name, error)
                refused[kind, name] = _reason(kind, name, error)
                if isinstance(action, RemoveChild):
                    message = f"{kind.kind} {name} cannot be deleted: {error}"
                    await self._recorder.emit(inference, "RemovalRefused", message, "Warning")
                return False
        return True

    async def _do(self, inference: Object, action: Action) -> None:
        match action:
            case PutBackTemplate():
                await self._put_back(inference, action)
            case Ensure():
                await self._ensure(inference, action)
            case RemoveChild():
                await self._kube.delete(
                    action.kind,
                    inference["metadata"]["namespace"],
                    action.name,
                    uid=action.uid,
                    propagation="Foreground" if action.foreground else "Background",
                )
            case SetFinalizers():
                await self._set_finalizers(inference, action)

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
            route=route if route is not None and meta["uid"] in owner_uids(route) else None,
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

    async def _put_back(self, inference: Object, action: PutBackTemplate) -> None:
        """Replace the template; an apply would leave the fields that others have added."""
        key, name = Key.of(inference), action.name
        before = self._cache.get(kinds.DEPLOYMENT, key.namespace, name)
        if before is None:
            return
        patch = [{"op": "replace", "path": "/spec/template", "value": action.template}]
        written = await self._kube.patch(
            kinds.DEPLOYMENT, key.namespace, name, patch, content_type=JSON_PATCH
        )
        self._cache.remember_write(kinds.DEPLOYMENT, written)
        self._put_backs.done(key, written)
        if written["metadata"]["generation"] != before["metadata"]["generation"]:
            message = f"put back the Pod template of revision {name}: {template_edits.describe(action.edits)}"
            await self._recorder.emit(inference, "TemplatePutBack", message, "Warning")
        else:
            # A webhook has edited the template again, so that the put-back changed nothing. Replicas of that
            # template may be proven now, and no watch event follows to start the reconcile that does it.
            self._loop.add(key)

    async def _ensure(self, inference: Object, action: Ensure) -> None:
        meta = action.object["metadata"]
        existing = self._cache.get(action.kind, meta["namespace"], meta["name"])
        if existing is None and action.claim_template is not None:
            await self._create_claim_template(action.claim_template)
        if existing is None and action.at_creation:
            body = {**action.object, "spec": {**action.object["spec"], **action.at_creation["spec"]}}
            try:
                self._cache.remember_write(action.kind, await self._kube.create(action.kind, body))
            except errors.AlreadyExists:
                existing = await self._kube.get(action.kind, meta["namespace"], meta["name"])
            else:
                return
        if existing is not None:
            await self._refuse_foreign(inference, action, existing)
        self._cache.remember_write(action.kind, await self._kube.apply(action.kind, action.object))

    async def _create_claim_template(self, template: Object) -> None:
        """Create the ResourceClaimTemplate of a revision, unless it exists.

        An existing one is equal, as the name of both is that of the revision, which has the template's hash.

        Raises:
            errors.Permanent: `RevisionRefused`, the API does not serve ResourceClaimTemplates.
        """
        try:
            await self._kube.create(kinds.RESOURCE_CLAIM_TEMPLATE, template)
        except errors.AlreadyExists:
            return
        except errors.NotFound as error:
            message = (
                "the GPU mechanism dra needs ResourceClaimTemplates (resource.k8s.io/v1),"
                " which this API lacks"
            )
            raise errors.Permanent("RevisionRefused", message) from error

    async def _refuse_foreign(self, inference: Object, action: Ensure, existing: Object) -> None:
        """Refuse to apply over an existing object that is not a child of this Inference.

        A child that has lost its owner is accepted: the apply makes the Inference its owner again.

        Raises:
            errors.Permanent: `NameTaken`, the object belongs to somebody else.
        """
        meta = inference["metadata"]
        owners = list(owner_uids(existing))
        is_orphan = not owners and (
            children.orphan_of(existing) == meta["name"] or _is_applied_by(existing, self._kube.field_manager)
        )
        if is_orphan or meta["uid"] in owners:
            return
        name = existing["metadata"]["name"]
        message = f"{action.kind.kind} {name} is not of this Inference: delete it, or choose another name"
        await self._recorder.emit(inference, "NameTaken", message, "Warning")
        raise errors.Permanent("NameTaken", message)

    async def _set_finalizers(self, inference: Object, action: SetFinalizers) -> None:
        meta = inference["metadata"]
        patch = {
            "metadata": {"finalizers": list(action.finalizers), "resourceVersion": meta["resourceVersion"]}
        }
        written = await self._kube.patch(kinds.INFERENCE, meta["namespace"], meta["name"], patch)
        if action.finalizers:  # without any, the API has removed the object, and the cache must not keep it
            self._cache.remember_write(kinds.INFERENCE, written)

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
        if before is None or after is None or _user_metadata(before) != _user_metadata(after):
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


def _is_refusal(error: errors.ApiError | errors.Permanent) -> bool:
    """Whether the API rejects only this object, so that others may still be written."""
    if isinstance(error, errors.Permanent):
        return True
    return error.code in _REFUSALS and all(cause.reason != _TERMINATING for cause in error.causes)


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


def _is_applied_by(obj: Object, manager: str) -> bool:
    return any(
        entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        for entry in obj["metadata"].get("managedFields") or []
    )


def _orphaned_by(child: Object) -> list[str]:
    name = children.orphan_of(child)
    return [] if name is None else [str(Key(child["metadata"]["namespace"], name))]


def _user_metadata(inference: Object) -> Object:
    """Return the metadata that users and their tools change; the generation stands for the spec."""
    own = ("resourceVersion", "managedFields")
    return {key: value for key, value in inference["metadata"].items() if key not in own}


def _revision(pod: Object) -> list[str]:
    meta = pod["metadata"]
    return [f"{meta['namespace']}/{meta['labels'].get(names.REVISION_LABEL, '')}"]


def _served_versions(deployment: Object) -> list[str]:
    namespace = deployment["metadata"]["namespace"]
    return [str(Key(namespace, version)) for version in versions_of_deployment(deployment)]


def _model_versions(inference: Object) -> list[str]:
    namespace = inference["metadata"]["namespace"]
    return [str(Key(namespace, p["modelVersion"])) for p in inference["spec"].get("predictors") or []]
