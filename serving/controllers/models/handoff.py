"""The hand-off controller: jobs with the annotation `slipway.dev/model` become ModelVersions."""

from serving import errors
from serving.controllers.models.training_jobs import JobKey, TrainingJobs
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches
from serving.objects import Object, is_deleting
from serving.planning.models import handoff as planner
from serving.planning.models.job_kind import TrainingJob, of_reference
from serving.resources import kinds, names
from serving.settings import ControllerSettings

_VERSION = "version"
"""Index of the jobs by the `NAMESPACE/NAME` of their ModelVersions, which need not exist yet."""
_OWNER = "owner"
"""Index of the jobs by the uid of the object that controls them."""
_OWNER_KIND = "owner-kind"
"""Index of the jobs by the `KIND.GROUP` of the object that controls them."""
_SOURCE = "source"
"""Index of the ModelVersions by the uid of the job that made them."""


class HandoffController:
    """One per process."""

    def __init__(
        self, kube: Kube, settings: ControllerSettings, watches: Watches, jobs: TrainingJobs
    ) -> None:
        versions = watches.of(kinds.MODEL_VERSION)
        self._kube = kube
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._versions, self._jobs = versions, jobs
        self._loop = Reconciler("hand-off", self.reconcile, settings)
        jobs.index(_VERSION, _version_of)
        jobs.index(_OWNER, _owner_of)
        jobs.index(_OWNER_KIND, _owner_kind_of)
        versions.index(_SOURCE, _source_of)
        jobs.on_change(self._job_changed)
        jobs.on_availability(self._availability_changed)
        versions.on_change(self._version_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._versions, *self._jobs.always_served)

    async def reconcile(self, key: JobKey) -> Result | None:
        """Do the next write for one job; the watch event of that write causes the next reconcile."""
        training_job = self._jobs.find(key)
        if not isinstance(training_job, TrainingJob):
            return None
        job = training_job.object
        versions = (self._versions.get(key.namespace, name) for name in planner.version_names(job))
        version = next(filter(None, versions), None)
        is_part = planner.is_part_of_another(job, self._jobs.owner, self._is_part_of_source)
        if is_part is None:
            if not is_deleting(job):
                return None  # the answer of the API about the owner's kind queues the job again
            is_part = self._is_part_of_source(
                job
            )  # a deletion must not wait for a kind that cannot be listed
        match planner.next_step(training_job, version, is_part=is_part):
            case planner.HoldJob():
                finalizers = job["metadata"].get("finalizers") or []
                await self._write(key, job, {"finalizers": [*finalizers, names.HANDOFF_FINALIZER]})
                if problem := planner.problem(job):  # while the training can still be stopped
                    await self._recorder.emit(job, "HandOffRefused", problem, "Warning")
            case planner.CreateVersion(new):
                await self._create(key, job, new)
            case planner.ReleaseJob(handed_off, warning):
                if warning:
                    await self._recorder.emit(job, "HandOffRefused", warning, "Warning")
                await self._release(key, job, handed_off)
            case None:
                pass
        return None

    def _is_part_of_source(self, job: Object) -> bool:
        """Whether the object that controls a job is the source of a ModelVersion."""
        return any(self._versions.count(_SOURCE, uid) for uid in _owner_of(job))

    async def _write(self, key: JobKey, job: Object, metadata: Object) -> None:
        """Patch metadata of the job if the job is unchanged: other writers may have changed the finalizers.

        Raises:
            errors.Temporary: the rules of the kind, or a webhook, refuse the job as it is.
        """
        patch = {"metadata": {**metadata, "resourceVersion": job["metadata"]["resourceVersion"]}}
        try:
            await self._kube.patch(self._jobs.kind(key), key.namespace, key.name, patch)
        except errors.Invalid as error:
            await self._recorder.emit(job, "HandOffRefused", str(error), "Warning")
            raise errors.Temporary("HandOffRefused", str(error)) from error

    async def _release(self, key: JobKey, job: Object, handed_off: str = "") -> None:
        """Remove the finalizer; in the same request, annotate the job with the name `handed_off`, if any."""
        finalizers = job["metadata"].get("finalizers") or []
        meta: Object = {"finalizers": [f for f in finalizers if f != names.HANDOFF_FINALIZER]}
        if handed_off:
            meta["annotations"] = {planner.HANDED_OFF_ANNOTATION: handed_off}
        await self._write(key, job, meta)

    async def _create(self, key: JobKey, job: Object, version: Object) -> None:
        """Create the ModelVersion.

        If the API refuses the version, the job keeps the finalizer, unless the job is being deleted: an edit
        of the job's annotations may still correct the version.

        Raises:
            errors.Temporary: a quota, a webhook or a missing right refuses it; the job keeps the finalizer.
        """
        try:
            await self._kube.create(kinds.MODEL_VERSION, version)
        except errors.AlreadyExists:
            return  # by an earlier attempt whose response was lost; the watch brings it
        except errors.Invalid as error:
            await self._recorder.emit(job, "HandOffRefused", str(error), "Warning")
            if is_deleting(job):
                await self._release(key, job)
            return
        except errors.ApiError as error:
            if errors.is_namespace_terminating(error):
                await self._release(key, job)  # the deletion of the namespace waits for the job
                return
            if not errors.is_refusal(error):
                raise
            await self._recorder.emit(job, "HandOffRefused", str(error), "Warning")
            raise errors.Temporary("HandOffRefused", str(error)) from error
        await self._recorder.emit(job, "HandedOff", f"created ModelVersion {version['metadata']['name']}")

    def _job_changed(self, key: JobKey, before: Object | None, after: Object | None) -> None:
        self._loop.add(key)
        if before is None or after is None or planner.model_of(before) != planner.model_of(after):
            self._wake_parts(after or before or {})

    def _wake_parts(self, job: Object) -> None:
        """Reconcile the jobs below `job`: a job below one that makes a version makes no version itself."""
        owners = [job]
        for _ in range(planner.MOST_OWNERS):
            parts = [
                part for owner in owners for part in self._jobs.by_index(_OWNER, owner["metadata"]["uid"])
            ]
            for part in parts:
                self._loop.add(part)
            jobs = map(self._jobs.find, parts)
            owners = [part.object for part in jobs if isinstance(part, TrainingJob)]

    def _availability_changed(self, group: str, kind: str) -> None:
        """Reconcile the jobs below those of a kind that is listed, or known to be out of reach, now."""
        for key in self._jobs.by_index(_OWNER_KIND, f"{kind}.{group}"):
            self._loop.add(key)
            job = self._jobs.find(key)
            if isinstance(job, TrainingJob):
                self._wake_parts(job.object)

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        for key in self._jobs.by_index(_VERSION, str(Key.of(after or before or {}))):
            self._loop.add(key)


def _version_of(job: Object) -> list[str]:
    if not planner.model_of(job):
        return []
    return [str(Key(job["metadata"]["namespace"], name)) for name in planner.version_names(job)]


def _owner_of(job: Object) -> list[str]:
    """Return the uid of the object that controls a job, at most one."""
    owners = job["metadata"].get("ownerReferences") or []
    return [owner["uid"] for owner in owners if owner.get("controller")]


def _owner_kind_of(job: Object) -> list[str]:
    """Return the `KIND.GROUP` of the object that controls a job, at most one."""
    owners = job["metadata"].get("ownerReferences") or []
    parts = (of_reference(owner) for owner in owners if owner.get("controller"))
    return [f"{kind}.{group}" for group, kind in parts]


def _source_of(version: Object) -> list[str]:
    uid = (version["spec"]["source"].get("job") or {}).get("uid")
    return [uid] if uid else []
