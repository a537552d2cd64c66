"""The Model controller: keeps `status.latestVersion` at the newest ready version, and applies retention.

A Model that has versions but was never written is created, so that `get models` shows it.
"""

from contextlib import suppress

from serving import clock, errors
from serving.controllers.models.version_usage import VersionUsage
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches
from serving.objects import Object
from serving.planning.models import model as planner
from serving.planning.models import retention
from serving.resources import kinds
from serving.resources.model import ModelSpec
from serving.settings import ControllerSettings

_MODEL = "model"
"""Index of the versions by their Model: `NAMESPACE/NAME`."""


class ModelController:
    """One per process."""

    def __init__(self, kube: Kube, settings: ControllerSettings, watches: Watches) -> None:
        self._kube = kube
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._retired: set[str] = set()
        """Uids of versions whose retirement has an Event and which still exist."""
        self._models = watches.of(kinds.MODEL)
        self._versions = versions = watches.of(kinds.MODEL_VERSION)
        self._loop = Reconciler("model", self.reconcile, settings)
        versions.index(_MODEL, _model_of)
        versions.on_change(self._version_changed)
        self._models.on_change(lambda before, after: self._loop.add(Key.of(after or before or {})))
        self._usage = VersionUsage(watches, self._usage_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._models, self._versions, *self._usage.informers)

    async def reconcile(self, key: Key) -> Result | None:
        """Write the Model's status if it has changed, then delete surplus versions."""
        model = self._models.get(*key)
        versions = self._versions.by_index(_MODEL, str(key))
        if model is None:
            if planner.must_be_created(versions):
                await self._create(key)
            return None
        status = planner.status(model, versions, clock.rfc3339(clock.now()))
        if status != (model.get("status") or {}):
            await self._kube.replace_status(kinds.MODEL, model, status)
        await self._retain(model, versions)
        return None

    async def _retain(self, model: Object, versions: list[Object]) -> None:
        """Delete unused versions beyond `retention.keep`; the finalizer holds one that is used by then."""
        policy = ModelSpec.model_validate(model.get("spec") or {}).retention
        if policy is None:
            return
        used = [v["metadata"]["name"] for v in versions if self._usage.is_used(Key.of(v))]
        for version in retention.surplus(versions, policy.keep, used):
            meta = version["metadata"]
            await self._kube.delete(kinds.MODEL_VERSION, meta["namespace"], meta["name"], uid=meta["uid"])
            if meta["uid"] not in self._retired:  # the watch may not have shown the deletion yet
                self._retired.add(meta["uid"])
                message = f"deleted {meta['name']}: {policy.keep} newer ready versions are kept"
                await self._recorder.emit(model, "VersionRetired", message)

    async def _create(self, key: Key) -> None:
        """Create the Model; the watch then causes another reconcile."""
        with suppress(errors.AlreadyExists):
            meta = {"name": key.name, "namespace": key.namespace}
            await self._kube.create(
                kinds.MODEL,
                {"apiVersion": kinds.MODEL.api_version, "kind": "Model", "metadata": meta, "spec": {}},
            )

    def _usage_changed(self, key: Key) -> None:
        version = self._versions.get(*key)
        if version is not None:
            self._version_changed(None, version)

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None:
            self._retired.discard(before["metadata"]["uid"])
        for version in (before, after):
            for name in _model_of(version) if version is not None else ():
                namespace, _, model = name.partition("/")
                self._loop.add(Key(namespace, model))


def _model_of(version: Object) -> list[str]:
    return [str(Key(version["metadata"]["namespace"], version["spec"]["modelName"]))]
