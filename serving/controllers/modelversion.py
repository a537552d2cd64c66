"""The ModelVersion controller: builds each version's image once, from a Job's output or a path."""

import asyncio
from pathlib import Path
from typing import Any

from serving import clock, errors
from serving.controllers.cache import Cache
from serving.controllers.output import Output, locate
from serving.images.build import Built, capture
from serving.images.store import ModelStore
from serving.kube import Key, Kube, Reconciler, Recorder, Result, Watches
from serving.planning import modelversion as planner
from serving.resources import kinds
from serving.resources.model import Phase
from serving.settings import ControllerSettings, DataDir

Object = dict[str, Any]

_JOB = "job"
_JOB_LABEL = "batch.kubernetes.io/job-name"
_BUILD_RETRY_SECONDS = 5.0


class ModelVersionController:
    """One per process."""

    def __init__(self, kube: Kube, settings: ControllerSettings, data: DataDir, watches: Watches) -> None:
        versions, jobs = watches.of(kinds.MODEL_VERSION), watches.of(kinds.JOB)
        self._kube = kube
        self._data = data
        self._store = ModelStore(data.models)
        self._recorder = Recorder(kube, kube.field_manager)
        self._versions, self._jobs = versions, jobs
        self._cache = Cache(versions)
        self._building = asyncio.Semaphore(settings.builds)
        self._loop = Reconciler("modelversion", self.reconcile, settings)
        versions.index(_JOB, _job_of)
        versions.on_change(lambda before, after: self._loop.add(Key.of(after or before or {})))
        jobs.on_change(self._job_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._versions, self._jobs)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one ModelVersion to Ready or Failed, or say what it waits for."""
        version = self._cache.get(kinds.MODEL_VERSION, *key)
        if version is None or version["metadata"].get("deletionTimestamp"):
            return None
        source = version["spec"]["source"].get("job")
        job = self._jobs.get(key.namespace, source["name"]) if source else None
        match planner.next_step(version, job):
            case planner.Wait(reason, message):
                await self._report(version, "Pending", reason, message)
            case planner.Fail(reason, message):
                await self._report(version, "Failed", reason, message)
            case planner.Build(found):
                return await self._build(version, found)
            case planner.Done():
                pass
        return None

    async def _build(self, version: Object, job: Object | None) -> Result | None:
        """Capture is a no-op for files that are in the store already: killed at any point, it can be repeated."""
        await self._report(version, "Building", "Building", "the image is being built")
        try:
            output = await self._output(version, job)
            async with self._building:
                built = await asyncio.to_thread(self._capture, version, job, output)
        except errors.Permanent as error:
            await self._report(version, "Failed", error.reason, str(error))
        except errors.Temporary as error:
            await self._report(version, "Building", error.reason, str(error))
            return Result(error.retry_after or _BUILD_RETRY_SECONDS)
        else:
            said = _described(version, job, built)
            await self._report(version, "Ready", "Built", f"image {built.digest}", said)
        return None

    async def _output(self, version: Object, job: Object | None) -> Output:
        if job is None:
            path = Path(version["spec"]["source"]["path"])
            return Output(path, path)
        meta = job["metadata"]
        labels = f"{_JOB_LABEL}={meta['name']}"
        listing = await self._kube.list(kinds.POD, meta["namespace"], labels=labels)
        owned = [
            pod
            for pod in listing.items
            if any(o["uid"] == meta["uid"] for o in pod["metadata"].get("ownerReferences") or [])
        ]
        return locate(job, owned, self._data)

    def _capture(self, version: Object, job: Object | None, output: Output) -> Built:
        return capture(
            output.path,
            self._store,
            repository=planner.repository(version),
            lineage=planner.lineage(version, job),
            framework=version["spec"].get("framework", ""),
            within=output.volume if job is not None else None,
        )

    async def _report(
        self, version: Object, phase: Phase, reason: str, message: str, built: Object | None = None
    ) -> None:
        status = planner.status(version, phase, (reason, message), clock.rfc3339(clock.now()), built)
        if status == version.get("status"):
            return
        written = await self._kube.apply_status(kinds.MODEL_VERSION, version, status)
        self._cache.wrote(kinds.MODEL_VERSION, written)
        await self._recorder.emit(version, reason, message, "Warning" if phase == "Failed" else "Normal")

    def _job_changed(self, before: Object | None, after: Object | None) -> None:
        for version in self._versions.by_index(_JOB, str(Key.of(after or before or {}))):
            self._loop.add(Key.of(version))


def _job_of(version: Object) -> list[str]:
    job = version["spec"]["source"].get("job")
    return [str(Key(version["metadata"]["namespace"], job["name"]))] if job else []


def _described(version: Object, job: Object | None, built: Built) -> Object:
    return planner.describe(
        image=built.image,
        digest=built.digest,
        size=built.size,
        framework=built.framework,
        metrics=built.metrics,
        files=[(file.path, file.digest, file.size) for file in built.files],
        origin=planner.lineage(version, job),
        source_revision=built.source_revision,
    )
