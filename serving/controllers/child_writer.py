"""Writes the children of Inferences: carries out the actions of plans, and adopts orphans. It must decide
nothing.
"""

import logging
from collections.abc import Callable, Iterable

from serving import errors
from serving.controllers.put_backs import PutBacks
from serving.kube import EventRecorder, Key, Kube
from serving.kube.cache import Cache, controlling_owner_uids
from serving.objects import Object, is_deleting
from serving.planning.gpu import pod as gpu_pod
from serving.planning.inference import children
from serving.planning.inference.comparison import template_edits
from serving.planning.inference.plan import Action, Ensure, PutBackTemplate, RemoveChild, SetFinalizers
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.kubernetes import owner_references
from serving.resources.kubernetes.patch_types import JSON_PATCH

log = logging.getLogger(__name__)


class ChildWriter:
    """The writes of one Inference controller."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        recorder: EventRecorder,
        put_backs: PutBacks,
        reconcile_again: Callable[[Key], None],
    ) -> None:
        """Take what the controller shares.

        Args:
            kube: the client of the API.
            cache: the Inferences and their children, which remembers each write.
            recorder: of the Events about Inferences.
            put_backs: gets the time of each put-back.
            reconcile_again: queues an Inference after a write that no watch event follows.
        """
        self._kube, self._cache, self._recorder = kube, cache, recorder
        self._put_backs, self._reconcile_again = put_backs, reconcile_again

    async def adopt(self, inference: Object, orphans: Iterable[tuple[Kind, Object]]) -> None:
        """Make an Inference the owner of the children that `kubectl delete --cascade=orphan` of an Inference
        of this name has kept: their Route has the proofs and the ring, so that the new Inference serves at
        once.
        """
        for kind, orphan in orphans:
            key = Key.of(orphan)
            current = self._cache.get(kind, *key)
            if current is None or children.orphan_of(current) is None or is_deleting(current):
                continue
            if not self.is_current(inference):
                return  # deleted meanwhile, perhaps with its children as orphans
            meta = current["metadata"]
            owner = owner_references.controller_reference(kinds.INFERENCE, inference)
            references = [*(meta.get("ownerReferences") or []), owner]
            patch = {"metadata": {"ownerReferences": references, "resourceVersion": meta["resourceVersion"]}}
            try:
                if kind is kinds.DEPLOYMENT and gpu_pod.has_claim(current["spec"]["template"], key.name):
                    await self._adopt_claim_template(inference, key)
                self._cache.remember_write(kind, await self._kube.patch(kind, *key, patch))
            except errors.ApiError as error:
                if not errors.is_refusal(error):
                    raise
                log.info("%s %s is not adopted: %s", kind.kind, key, error)

    async def _adopt_claim_template(self, inference: Object, key: Key) -> None:
        """Make the Inference the only owner of a revision's ResourceClaimTemplate.

        The patch replaces all owners, as the controller may not read them.
        """
        owner = owner_references.controller_reference(kinds.INFERENCE, inference)
        patch = {"metadata": {"ownerReferences": [owner]}}
        try:
            await self._kube.patch(kinds.RESOURCE_CLAIM_TEMPLATE, *key, patch)
        except errors.NotFound:
            log.warning("Deployment %s needs a ResourceClaimTemplate of its name, which is gone", key)

    def is_current(self, inference: Object) -> bool:
        """Return whether this Inference still exists, and is not being deleted."""
        current = self._cache.get(kinds.INFERENCE, *Key.of(inference))
        uid = inference["metadata"]["uid"]
        return current is not None and current["metadata"]["uid"] == uid and not is_deleting(current)

    async def carry_out(self, inference: Object, action: Action) -> None:
        """Carry out one action of an Inference's plan.

        Raises:
            errors.ApiError: the API rejects the write.
            errors.Permanent: `NameTaken`, the child's name belongs to somebody else; `RevisionRefused`, the
                API does not serve what the revision needs.
        """
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
            self._reconcile_again(key)

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
        owners = list(controlling_owner_uids(existing))
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


def _is_applied_by(obj: Object, manager: str) -> bool:
    return any(
        entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        for entry in obj["metadata"].get("managedFields") or []
    )
