"""The ModelVersion controller: builds each image once, keeps it while used, and releases it on deletion.

One queue has the decisions, which are quick. Builds and transfers, which may take hours, have queues of their
own (`build_queues`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

from serving import clock, errors
from serving.controllers.models.build_queues import LOCAL, BuildQueues, queue_of
from serving.controllers.models.capture_jobs import CaptureJobs
from serving.controllers.models.image_builder import ImageBuilder
from serving.controllers.models.image_retention import ImageRetention
from serving.controllers.models.image_transfer import ReportProgress
from serving.controllers.models.model_policies import ModelPolicies
from serving.controllers.models.training_jobs import JobKey, TrainingJobs
from serving.controllers.models.version_usage import VersionUsage
from serving.data_dir import DataDir
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches
from serving.kube.cache import Cache
from serving.objects import Object, is_deleting
from serving.planning.models import capture, job_kind
from serving.planning.models import version as planner
from serving.planning.models.job_kind import TrainingJob
from serving.planning.models.policy import Examination
from serving.resources import kinds
from serving.resources.kubernetes.conditions import StatusReason
from serving.resources.model import Phase
from serving.settings import Settings

_JOB = "job"
_MODEL = "model-of-version"
_NAMESPACE = "namespace-of-version"


class _BuiltImage(NamedTuple):
    """A built image that no stored status has yet."""

    uid: str
    """The uid of the ModelVersion, as a new one may get the same name."""
    image_status: Object
    """The part of the status that describes the image."""


class ModelVersionController:
    """One per process."""

    def __init__(
        self, kube: Kube, settings: Settings, data: DataDir, watches: Watches, jobs: TrainingJobs
    ) -> None:
        self._kube = kube
        self._settings = settings.controllers
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._versions, self._jobs = watches.of(kinds.MODEL_VERSION), jobs
        self._models = watches.of(kinds.MODEL)
        self._namespaces = watches.of(kinds.NAMESPACE)
        self._policies = ModelPolicies(kube, self._namespaces, settings.models.policy)
        self._examinations: dict[Key, Examination] = {}
        """The last examination of each image by this process."""
        self._cache = Cache(self._versions)
        self._decisions = Reconciler("modelversion", self.reconcile, self._settings)
        self._builds = BuildQueues(self._work, self._queue_of, self._settings)
        self._built: dict[Key, _BuiltImage] = {}
        """Images whose status the API has not stored yet, so that a failed write costs no second build."""
        self._busy: set[Key] = set()
        """Versions that are being built or fetched; they are released only afterwards."""
        self._due: dict[Key, float] = {}
        """When the next attempt is due, in monotonic seconds."""
        usage = VersionUsage(watches, self._decisions.add)
        self._builder = ImageBuilder(kube, ModelStore(data.models, settings.store), data, settings)
        self._retention = ImageRetention(kube, self._builder, usage, self._versions, settings)
        self._captures = CaptureJobs(kube, watches.of(kinds.JOB), settings)
        self._informers = (
            self._versions,
            *jobs.always_served,
            self._models,
            self._namespaces,
            *usage.informers,
        )
        self._watch()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decisions.run(*self._informers))
            group.create_task(self._builds.run(*self._informers))

    async def reconcile(self, key: Key) -> Result | None:
        """Do the quick steps for one ModelVersion, and queue the slow ones."""
        version = self._cache.get(kinds.MODEL_VERSION, *key)
        if version is None:
            self._due.pop(key, None)
            self._examinations.pop(key, None)
            self._built.pop(key, None)
            return None
        if is_deleting(version):
            self._built.pop(key, None)
            if key not in self._busy:
                return await self._retention.release(version)
            self._builder.stop(version)
            return None
        return await self._take_step(version, await self._next_step(version))

    async def _take_step(
        self, version: Object, step: planner.VersionStep | capture.CaptureStep
    ) -> Result | None:
        match step:
            case planner.AdoptVersion(metadata):
                await self._adopt(version, metadata)
            case planner.WaitForSource(reason="ModelNotFound" | job_kind.NOT_LISTED):
                pass  # not worth a write: the Model is about to be created, or the jobs to be listed
            case planner.WaitForSource(reason, message):
                await self._report(version, "Pending", reason, message)
            case planner.FailVersion(reason, message):
                await self._report(version, "Failed", reason, message)
            case planner.BuildImage() | planner.ExamineImage():
                self._builds.add(Key.of(version))
            case planner.ApplyPolicies():
                await self._judge(version, planner.image_status(version))
            case planner.VersionFinished():
                self._built.pop(Key.of(version), None)
                phase = version["status"].get("phase")
                # The Pods of a failed capture show the reason, and are deleted with the Job.
                await self._captures.discard(version, keep_ended=phase == "Failed")
                if phase == "Blocked":
                    await self._retention.unpin_blocked(version)
                elif phase == "Ready" and not await self._retention.update_pin(version):
                    self._builds.add(Key.of(version))  # the store lacks the image, and the build restores it
            case _:
                return await self._take_capture_step(version, step)
        return None

    def _queue_of(self, key: Key) -> str:
        version = self._cache.get(kinds.MODEL_VERSION, *key)
        if version is None:
            return LOCAL
        return queue_of(version, self._models.get(key.namespace, version["spec"]["modelName"]))

    async def _take_capture_step(
        self,
        version: Object,
        step: capture.CreateCapture | capture.WaitForCapture | capture.CaptureFailed | capture.DiscardCapture,
    ) -> Result | None:
        """Take a step with the capture Job, which captures the output of the training job."""
        match step:
            case capture.CreateCapture(job):
                if refusal := await self._captures.create(job):
                    await self._report(version, "Pending", "CaptureRefused", refusal, warn=True)
                    return Result(self._settings.build_backoff_cap_seconds)
            case capture.WaitForCapture(reason, message):
                await self._report(version, "Building", reason, message)
                return Result(self._settings.progress_seconds)  # the capture Job's Pods are not watched
            case capture.CaptureFailed(reason, message, is_final=True):
                await self._report(version, "Failed", reason, message)
            case capture.CaptureFailed(reason, message):
                return await self._report_failure(version, errors.Temporary(reason, message))
            case capture.DiscardCapture():
                # The next capture begins once this one is deleted, so its deletion waits for the back-off.
                if (wait := self._due.get(Key.of(version), 0.0) - clock.monotonic()) > 0:
                    return Result(wait)
                await self._captures.discard(version)
        return None

    async def _next_step(self, version: Object) -> planner.VersionStep | capture.CaptureStep:
        """Return the next step by the caches; where Pods capture outputs, a build follows a capture."""
        namespace, key = version["metadata"]["namespace"], JobKey.of_source(version)
        job = self._jobs.find(key) if key else None
        model = self._models.get(namespace, version["spec"]["modelName"])
        policies = self._policies.cached(namespace)
        step = planner.next_step(version, job, model, policies, self._examination(version))
        if isinstance(step, planner.FailVersion) and step.missing_uid:
            assert key is not None
            if await self._jobs.exists(self._kube, key, step.missing_uid):  # its event is still to come
                return planner.WaitForSource(job_kind.NOT_LISTED, f"the watch has not shown {key} yet")
        if (
            isinstance(step, planner.BuildImage)
            and step.job is not None
            and await self._captures.are_by_pod()
        ):
            assert model is not None
            return await self._captures.next_step(version, step.job, model)
        return step

    def _examination(self, version: Object) -> Examination | None:
        """Return the last examination of the image; None if there is none, or it failed and is due again."""
        key = Key.of(version)
        examination = self._examinations.get(key)
        is_due = self._due.get(key, 0.0) <= clock.monotonic()
        return None if examination is None or (examination.problem and is_due) else examination

    async def _adopt(self, version: Object, metadata: Object) -> None:
        """Write finalizer and owner, unless another writer has changed the version meanwhile."""
        meta = version["metadata"]
        patch = {"metadata": {**metadata, "resourceVersion": meta["resourceVersion"]}}
        written = await self._kube.patch(kinds.MODEL_VERSION, meta["namespace"], meta["name"], patch)
        self._cache.remember_write(kinds.MODEL_VERSION, written)
        self._decisions.add(Key.of(version))

    async def _work(self, key: Key) -> Result | None:
        """Do the slow step for one ModelVersion, if the step is due and still needed."""
        version = self._cache.get(kinds.MODEL_VERSION, *key)
        if version is None or is_deleting(version):
            return None
        if (wait := self._due.get(key, 0.0) - clock.monotonic()) > 0:
            return Result(wait)
        self._busy.add(key)
        try:
            match await self._next_step(version):
                case planner.BuildImage(job, captured_image):
                    return await self._build(version, job, captured_image)
                case planner.ExamineImage():
                    return await self._examine(version)
                case planner.VersionFinished() if version["status"].get("phase") == "Ready":
                    return await self._restore(version)
                case _:
                    return None
        finally:
            self._busy.discard(key)
            self._decisions.add(key)

    async def _build(self, version: Object, job: TrainingJob | None, captured_image: str) -> Result | None:
        """Build the image, or report the image that an earlier call has built.

        `captured_image` is the reference of the image that a Pod has made of the job's output; empty for
        other sources.
        """
        meta = version["metadata"]
        kept = self._built.get(Key.of(version))
        if kept is not None and kept.uid == meta["uid"]:
            return await self._finish(version, kept.image_status)
        model = self._models.get(meta["namespace"], version["spec"]["modelName"])
        assert model is not None
        if (version.get("status") or {}).get("phase") != "Building":
            version = await self._report(version, "Building", "Building", "the image is being built")
        try:
            trusted = self._policies.keys(await self._policies.current(meta["namespace"]))
            async with self._progress(version) as report:
                with disk.failures_mapped():
                    image_status = await self._builder.build(
                        version, job, model, trusted, report, captured=captured_image
                    )
        except errors.Permanent as error:
            if captured_image and error.reason == "ImageNotFound":  # removed from the registry: capture again
                await self._captures.discard(version)
                return await self._report_failure(version, errors.Temporary(error.reason, str(error)))
            await self._report(version, "Failed", error.reason, str(error))
            await self._retention.discard_attempts(version)
            return None
        except errors.Temporary as error:
            return await self._report_failure(version, error)
        self._examinations[Key.of(version)] = Examination(frozenset(trusted))
        self._built[Key.of(version)] = _BuiltImage(meta["uid"], image_status)
        return await self._finish(version, image_status)

    async def _finish(self, version: Object, image_status: Object) -> Result | None:
        """Report a built image. A report that fails is repeated without another build.

        A report that the API refuses counts as a failed attempt.
        """
        try:
            await self._judge(version, image_status)
        except errors.ApiError as error:
            if not _is_too_large(error):
                if not errors.is_refusal(error):
                    raise
                return await self._report_failure(version, errors.Temporary("StatusRefused", str(error)))
            count = len(image_status["files"])
            message = f"the API cannot store the list of {count} files: pack small ones together ({error})"
            await self._report(version, "Failed", "TooManyFiles", message)
            await self._retention.discard_attempts(version)
        self._built.pop(Key.of(version), None)
        await self._retention.evict()
        return None

    async def _examine(self, version: Object) -> Result | None:
        """Find the files with code and the signatures of a built image; a failure is tried again later."""
        meta, problem = version["metadata"], ""
        trusted = self._policies.keys(await self._policies.current(meta["namespace"]))
        model = self._models.get(meta["namespace"], version["spec"]["modelName"])
        image_status = planner.image_status(version)
        try:
            with disk.failures_mapped():
                image_status |= await self._builder.examine(version, model, trusted)
        except (errors.Permanent, errors.Temporary) as error:
            problem = f"{error.reason}: {error}"
            self._due[Key.of(version)] = clock.monotonic() + self._settings.build_backoff_cap_seconds
        self._examinations[Key.of(version)] = Examination(frozenset(trusted), problem)
        await self._judge(version, image_status)
        return Result(self._settings.build_backoff_cap_seconds) if problem else None

    async def _judge(self, version: Object, image_status: Object) -> None:
        """Report a version that has its image as Ready or Blocked, by the policies that the API has now.

        A policy from a cache may be old, and a version that is wrongly Ready for a moment gets replicas.
        """
        policies = await self._policies.current(version["metadata"]["namespace"])
        examination = self._examinations.get(Key.of(version))
        phase, reason = planner.judge(policies, image_status, examination)
        if phase == "Ready":  # before the report, upon which replicas start and read the image
            await self._retention.warm(image_status["digest"])
        await self._report(version, phase, reason.reason, reason.message, image_status)

    async def _report_failure(self, version: Object, error: errors.Temporary) -> Result | None:
        """Count a failed attempt in the status; return the delay of the next one, None after the last."""
        if self._is_gone_or_deleting(version):
            return None
        attempts = int((version.get("status") or {}).get("attempts", 0)) + 1
        config = self._settings
        step = planner.after_failure(
            attempts,
            error.reason,
            str(error),
            error.retry_after,
            limit=config.build_attempts,
            base=config.build_backoff_base_seconds,
            cap=config.build_backoff_cap_seconds,
        )
        match step:
            case planner.FailVersion(reason, message):
                await self._report(version, "Failed", reason, message, attempts=attempts)
                self._built.pop(Key.of(version), None)
                await self._retention.discard_attempts(version)
                return None
            case planner.RetryBuild(reason, message, seconds):
                self._due[Key.of(version)] = clock.monotonic() + seconds
                await self._report(version, "Building", reason, message, attempts=attempts, warn=True)
                return Result(seconds)

    def _is_gone_or_deleting(self, version: Object) -> bool:
        """Whether the version is gone or is being deleted."""
        current = self._cache.get(kinds.MODEL_VERSION, *Key.of(version))
        return current is None or is_deleting(current)

    async def _restore(self, version: Object) -> Result | None:
        """Fetch the missing image of a ready version; a failure is only an Event, as it remains Ready."""
        if await self._retention.update_pin(version):
            return None
        image, meta = version["status"]["image"], version["metadata"]
        try:
            model = self._models.get(meta["namespace"], version["spec"]["modelName"])
            with disk.failures_mapped():
                await self._builder.restore(version, model)
        except (errors.Permanent, errors.Temporary) as error:
            self._due[Key.of(version)] = clock.monotonic() + self._settings.build_backoff_cap_seconds
            await self._recorder.emit(
                version, error.reason, f"cannot fetch {image} again: {error}", "Warning"
            )
            return Result(self._settings.build_backoff_cap_seconds)
        await self._recorder.emit(version, "Fetched", f"fetched {image} again")
        await self._retention.evict()
        return None

    @asynccontextmanager
    async def _progress(self, version: Object) -> AsyncIterator[ReportProgress]:
        """Yield a callback for progress messages, from any thread; the status gets the latest regularly."""
        messages: deque[str] = deque(maxlen=1)

        async def report() -> None:
            while True:
                await asyncio.sleep(self._settings.progress_seconds)
                if messages:
                    with suppress(errors.Unavailable, errors.ApiError):
                        await self._report(version, "Building", "Building", messages.pop(), quiet=True)

        task = asyncio.create_task(report())
        try:
            yield messages.append
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _report(
        self,
        version: Object,
        phase: Phase,
        reason: str,
        message: str,
        image_status: Object | None = None,
        *,
        attempts: int | None = None,
        warn: bool = False,
        quiet: bool = False,
    ) -> Object:
        """Write the status and emit an Event, if the status has changed; return the stored version.

        Args:
            version: the ModelVersion.
            phase: the new phase.
            reason: of the condition `Ready` and of the Event.
            message: of the same.
            image_status: the part of the status that describes the image; None before there is one.
            attempts: failed attempts so far; None for the number in the status.
            warn: whether the Event is a warning in phases other than Failed and Blocked.
            quiet: whether there is no Event.
        """
        now = clock.rfc3339(clock.now())
        old = version.get("status") or {}
        failed = int(old.get("attempts", 0)) if attempts is None else attempts
        why = StatusReason(reason, message)
        status = planner.status(version, phase, why, now, image_status, attempts=failed)
        # Not `old == status`, as the API has added defaults to the stored status.
        if all(old.get(key) == value for key, value in status.items()):
            return version
        written = await self._kube.replace_status(kinds.MODEL_VERSION, version, status)
        self._cache.remember_write(kinds.MODEL_VERSION, written)
        if not quiet:
            is_warning = warn or phase in ("Failed", "Blocked")
            await self._recorder.emit(version, reason, message, "Warning" if is_warning else "Normal")
        return written

    def _watch(self) -> None:
        self._versions.index(_JOB, _job_of)
        self._versions.index(_MODEL, _model_of)
        self._versions.index(_NAMESPACE, lambda version: [version["metadata"]["namespace"]])
        self._cache.on_news(
            kinds.MODEL_VERSION, lambda before, after: self._decisions.add(Key.of(after or before or {}))
        )
        self._jobs.on_change(self._job_changed)
        self._jobs.on_availability(self._availability_changed)
        self._models.on_change(self._model_changed)
        self._namespaces.on_change(self._namespace_changed)

    def _job_changed(self, key: JobKey, before: Object | None, after: Object | None) -> None:
        for version in self._versions.by_index(_JOB, str(key)):
            self._decisions.add(Key.of(version))
        job = after or before or {}
        for owner in job["metadata"].get("ownerReferences") or []:
            if owner["kind"] == kinds.MODEL_VERSION.kind:
                self._decisions.add(Key(key.namespace, owner["name"]))

    def _availability_changed(self, group: str, kind: str) -> None:
        """Decide again on the versions of all jobs of the kind: a version whose job is missing fails if the
        jobs are listed, and waits if they cannot be.
        """
        for version in self._versions:
            key = JobKey.of_source(version)
            if key and (key.group, key.kind) == (group, kind):
                self._decisions.add(Key.of(version))

    def _model_changed(self, before: Object | None, after: Object | None) -> None:
        """Retry at once with the Model's new spec, which has the registry and its credentials."""
        if before and after and before["metadata"]["generation"] == after["metadata"]["generation"]:
            return
        for version in self._versions.by_index(_MODEL, str(Key.of(after or before or {}))):
            self._due.pop(Key.of(version), None)
            self._decisions.add(Key.of(version))

    def _namespace_changed(self, before: Object | None, after: Object | None) -> None:
        """Decide again if the annotations have changed, which may have the namespace's policy."""
        meta = (after or before or {})["metadata"]
        if before and after and before["metadata"].get("annotations") == meta.get("annotations"):
            return
        for version in self._versions.by_index(_NAMESPACE, meta["name"]):
            self._decisions.add(Key.of(version))


def _is_too_large(error: errors.ApiError) -> bool:
    """Whether an API server, or the etcd behind it (code 500), refuses an object for its size."""
    return error.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or "too large" in error.message


def _job_of(version: Object) -> list[str]:
    key = JobKey.of_source(version)
    return [str(key)] if key else []


def _model_of(version: Object) -> list[str]:
    return [str(Key(version["metadata"]["namespace"], version["spec"]["modelName"]))]
