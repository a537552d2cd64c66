"""The hand-off controller: Jobs with the annotation `slipway.dev/model` become ModelVersions."""

from serving import errors
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches
from serving.objects import Object, is_deleting
from serving.planning.models import handoff as planner
from serving.resources import kinds, names
from serving.settings import ControllerSettings

_VERSION = "version"
_TERMINATING = "NamespaceTerminating"
"""Cause of a refusal to create an object in a namespace that is being deleted."""


class HandoffController:
    """One per process."""

    def __init__(self, kube: Kube, settings: ControllerSettings, watches: Watches) -> None:
        versions, jobs = watches.of(kinds.MODEL_VERSION), watches.of(kinds.JOB)
        self._kube = kube
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._versions, self._jobs = versions, jobs
        self._loop = Reconciler("hand-off", self.reconcile, settings)
        jobs.index(_VERSION, _version_of)
        jobs.on_change(lambda before, after: self._loop.add(Key.of(after or before or {})))
        versions.on_change(self._version_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._versions, self._jobs)

    async def reconcile(self, key: Key) -> Result | None:
        """Do the next write for one Job; the watch then wakes this again."""
        job = self._jobs.get(*key)
        if job is None:
            return None
        step = planner.next_step(job, self._versions.get(key.namespace, planner.version_name(job)))
        finalizers = job["metadata"].get("finalizers") or []
        match step:
            case planner.HoldJob():
                await self._write(job, {"finalizers": [*finalizers, names.HANDOFF_FINALIZER]})
            case planner.CreateVersion(version):
                await self._create(job, version)
            case planner.ReleaseJob(handed_off, warning):
                if warning:
                    await self._recorder.emit(job, "HandOffRefused", warning, "Warning")
                meta: Object = {"finalizers": [f for f in finalizers if f != names.HANDOFF_FINALIZER]}
                if handed_off:
                    meta["annotations"] = {planner.HANDED_OFF_ANNOTATION: handed_off}
                await self._write(job, meta)
            case None:
                pass
        return None

    async def _write(self, job: Object, metadata: Object) -> None:
        """Compare and swap: others may have changed the finalizers."""
        meta = job["metadata"]
        patch = {"metadata": {**metadata, "resourceVersion": meta["resourceVersion"]}}
        await self._kube.patch(kinds.JOB, meta["namespace"], meta["name"], patch)

    async def _release(self, job: Object) -> None:
        finalizers = job["metadata"].get("finalizers") or []
        await self._write(job, {"finalizers": [f for f in finalizers if f != names.HANDOFF_FINALIZER]})

    async def _create(self, job: Object, version: Object) -> None:
        try:
            await self._kube.create(kinds.MODEL_VERSION, version)
        except errors.AlreadyExists:
            return  # by an earlier attempt whose response was lost; the watch brings it
        except errors.Forbidden as error:
            if all(cause.reason != _TERMINATING for cause in error.causes):
                raise
            await self._release(job)  # which the end of the namespace waits for
            return
        except errors.Invalid as error:
            await self._recorder.emit(job, "HandOffRefused", str(error), "Warning")
            if is_deleting(job):
                await self._release(job)
            return
        await self._recorder.emit(job, "HandedOff", f"created ModelVersion {version['metadata']['name']}")

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        for job in self._jobs.by_index(_VERSION, str(Key.of(after or before or {}))):
            self._loop.add(Key.of(job))


def _version_of(job: Object) -> list[str]:
    if not planner.model_of(job):
        return []
    return [str(Key(job["metadata"]["namespace"], planner.version_name(job)))]
