"""The training jobs of all kinds that an installation knows and the API serves.

A *row* is the entry of one kind in the table of job kinds.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from serving.kube import Informer, Key, Kube, OptionalInformer, Watches
from serving.objects import Object
from serving.planning.models import job_kind
from serving.planning.models.job_kind import JobKind, JobKinds, TrainingJob, UnknownJob
from serving.resources import kinds
from serving.resources.kinds import Kind


class JobKey(NamedTuple):
    """Names a job, without the API version of the kind: a job may be served in another version later."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of_source(cls, version: Object) -> "JobKey | None":
        """Return the job that is the source of a ModelVersion; None for other sources."""
        source = version["spec"]["source"].get("job")
        if not source:
            return None
        return cls(*job_kind.of_reference(source), version["metadata"]["namespace"], source["name"])

    def __str__(self) -> str:
        return f"{self.kind}.{self.group} {self.namespace}/{self.name}"


class TrainingJobs:
    """A view of the watches of one process; handlers and indexes must be set before these run."""

    def __init__(self, watches: Watches, table: JobKinds) -> None:
        self.table = table
        self._informers = {(row.api_kind.group, row.api_kind.kind): _informer(watches, row) for row in table}

    @property
    def always_served(self) -> Iterable[Informer]:
        """The informers of kinds that every API has."""
        return [one for one in self._informers.values() if not isinstance(one, OptionalInformer)]

    def on_change(self, handler: Callable[[JobKey, Object | None, Object | None], None]) -> None:
        """Call `handler(key, before, after)` at every change of a job."""
        for (group, kind), informer in self._informers.items():

            def changed(
                before: Object | None, after: Object | None, group: str = group, kind: str = kind
            ) -> None:
                handler(JobKey(group, kind, *Key.of(after or before or {})), before, after)

            informer.on_change(changed)

    def on_availability(self, handler: Callable[[str, str], None]) -> None:
        """Call `handler(group, kind)` when the jobs of an optional kind are listed or out of reach."""
        for (group, kind), informer in self._informers.items():
            if isinstance(informer, OptionalInformer):
                informer.on_availability(lambda group=group, kind=kind: handler(group, kind))  # type: ignore[misc]

    def index(self, name: str, values: Callable[[Object], Iterable[str]]) -> None:
        """Index the jobs of all kinds by the values that `values(job)` returns."""
        for informer in self._informers.values():
            informer.index(name, values)

    def by_index(self, name: str, value: str) -> Iterator[JobKey]:
        """Yield the keys of the jobs that the index `name` has under `value`."""
        for (group, kind), informer in self._informers.items():
            for job in informer.by_index(name, value):
                yield JobKey(group, kind, *Key.of(job))

    def find(self, key: JobKey) -> TrainingJob | UnknownJob | None:
        """Return the job; None if it does not exist; an `UnknownJob` if its kind is unknown or not listed."""
        row, informer = self.table.find(key.group, key.kind), self._informers.get((key.group, key.kind))
        if row is None or informer is None:
            known = ", ".join(sorted(f"{row.api_kind.kind}.{row.api_kind.group}" for row in self.table))
            return UnknownJob(
                "UnknownJobKind",
                f"spec.source.job: kind and group must be one of {known}, got {key.kind}.{key.group}",
            )
        if isinstance(informer, OptionalInformer) and not informer.synced.is_set():
            if informer.obstacle:
                return UnknownJob("JobKindUnavailable", f"{key.kind} {key.name}: {informer.obstacle}")
            return UnknownJob(job_kind.NOT_LISTED, f"the objects of {row.api_kind} are not listed yet")
        job = informer.get(key.namespace, key.name)
        return None if job is None else TrainingJob(row, job)

    async def exists(self, kube: Kube, key: JobKey, uid: str) -> bool:
        """Ask the API for a job that the copy lacks; by a list, for which the controllers have the right."""
        listing = await kube.list(self.kind(key), key.namespace, fields=f"metadata.name={key.name}")
        return any(job["metadata"]["uid"] == uid for job in listing.items)

    def owner(self, job: Object) -> Object | UnknownJob | None:
        """Return the job that controls this one; None if no job of a known kind does.

        Returns:
            an `UnknownJob` if jobs of the owner's kind cannot be read: with the reason `NOT_LISTED` if the
            API's next answer decides whether they can be, with another reason if they cannot be for now.
        """
        for reference in job["metadata"].get("ownerReferences") or []:
            if reference.get("controller"):
                key = JobKey(
                    *job_kind.of_reference(reference), job["metadata"]["namespace"], reference["name"]
                )
                owner, informer = self.find(key), self._informers.get((key.group, key.kind))
                if isinstance(owner, UnknownJob) and isinstance(informer, OptionalInformer):
                    return owner._replace(reason=job_kind.NOT_LISTED) if informer.is_in_doubt else owner
                if isinstance(owner, TrainingJob) and owner.object["metadata"]["uid"] == reference["uid"]:
                    return owner.object
        return None

    def kind(self, key: JobKey) -> Kind:
        """Return the kind of an existing job, in the version that the API serves."""
        return self._informers[key.group, key.kind].kind


def _informer(watches: Watches, row: JobKind) -> Informer:
    """Return the informer of a kind: every API serves `batch/v1` Jobs, the other kinds are optional."""
    preferred = row.api_kind.at(row.api_kind.versions[0])
    return watches.of(kinds.JOB) if preferred is kinds.JOB else watches.optional(row.api_kind, row.trimmed)
