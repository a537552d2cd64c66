"""A kind of training job: how an object of it ends, and which of its Pods has the output.

The rules are data (`manifests/job-kinds`, read by `serving.job_kinds`): this module names no project. A path
is a field of the job with dots, such as `status.phase`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from serving.objects import Object
from serving.planning.models import job_template
from serving.resources import kinds, names
from serving.resources.job_kind import JobPods, Sign
from serving.resources.kinds import OptionalKind

Outcome = Literal["Succeeded", "Failed"]
NOT_LISTED = "JobsNotListed"
"""Reason of an `UnknownJob` until the API has listed the jobs of the kind for the first time."""


@dataclass(frozen=True, eq=False)
class JobKind:
    """The rules for one kind of job; compared by identity."""

    api_kind: OptionalKind
    """The kind in the API."""
    succeeded: tuple[Sign, ...]
    """A job with one of these signs has succeeded, unless it has a sign of failure."""
    failed: tuple[Sign, ...]
    """A job with one of these signs has failed."""
    pods: JobPods
    """The labels of the job's Pods, and which of the Pods may have its output."""

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        """Return how the job has ended; None while it has not."""
        if any(_has(job, sign) for sign in self.failed):
            return "Failed"
        return "Succeeded" if any(_has(job, sign) for sign in self.succeeded) else None

    def pod_selector(self, job: Mapping[str, Any]) -> str:
        """Return the label selector of the job's Pods in the notation of `kubectl get -l`.

        Empty while the job lacks the field with the value of the label, so that it has no Pods yet.
        """
        label_value = _text(job, self.pods.value)
        if not label_value:
            return ""
        labels = {**self.pods.labels, self.pods.label: label_value}
        return ",".join(f"{key}={labels[key]}" for key in sorted(labels))

    def with_output(self, job: Mapping[str, Any], pods: Iterable[Object]) -> list[Object]:
        """Return the Pods that may have the job's output, the best first.

        A Pod with a value for `SLIPWAY_OUTPUT_DIR` comes first, then a Pod of a preferred role, then a newer
        Pod.

        Args:
            job: a job that has succeeded.
            pods: the Pods with the labels of `pod_selector`.
        """
        own = [
            pod
            for pod in pods
            if (pod.get("status") or {}).get("phase") in self.pods.phases and self._has_pod(job, pod)
        ]
        own.sort(
            key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), reverse=True
        )
        return sorted(own, key=lambda pod: (not _names_output(pod), self._rank(pod)))

    def trimmed(self, job: Object) -> Object:
        """Return the job without the parts that no rule reads: a Workflow's status may have a megabyte."""
        meta = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
        annotations = meta.get("annotations") or {}
        meta["annotations"] = {k: v for k, v in annotations.items() if k.startswith(names.ANNOTATION_PREFIX)}
        status = job.get("status")
        read_fields = self._read_fields()
        status = {k: v for k, v in status.items() if k in read_fields} if isinstance(status, dict) else {}
        kept = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": meta, "status": status}
        return kept | job_template.trimmed(job, self.pods.templates)

    def templates(self, job: Mapping[str, Any]) -> list[Object]:
        """Return the Pod templates with a value for `SLIPWAY_OUTPUT_DIR`, as Pods that have only a spec."""
        return [pod for pod in job_template.templates(job, self.pods.templates) if _names_output(pod)]

    def _read_fields(self) -> set[str]:
        """Return the members of a status that the rules read."""
        paths = [path for sign in (*self.succeeded, *self.failed) for path in sign.fields]
        # Each path begins with `status.`, except for a label value of `metadata.name`, which adds a member
        # `name` that no status needs.
        return {"conditions", *(path.split(".")[1] for path in (*paths, self.pods.value))}

    def _has_pod(self, job: Mapping[str, Any], pod: Object) -> bool:
        """Whether a Pod with the job's labels is the job's, and not a Pod of an earlier job of the same name.

        A later job of the same name cannot exist yet, as a finalizer holds this one.
        """
        meta = pod["metadata"]
        if self.pods.owned:
            return any(o["uid"] == job["metadata"]["uid"] for o in meta.get("ownerReferences") or [])
        created: str = job["metadata"].get("creationTimestamp", "")
        return bool(meta["creationTimestamp"] >= created)

    def _rank(self, pod: Object) -> int:
        """Return the index of the Pod's role in `pods.first`, or the length of that list for other Pods."""
        labels = (pod["metadata"].get("labels") or {}).items()
        ranks = (rank for rank, role in enumerate(self.pods.first) if role.items() <= labels)
        return next(ranks, len(self.pods.first))


class TrainingJob(NamedTuple):
    """A job that exists, with its kind."""

    kind: JobKind
    object: Object

    @property
    def outcome(self) -> Outcome | None:
        return self.kind.outcome(self.object)


class UnknownJob(NamedTuple):
    """Why it is not known whether a job exists: a reason in CamelCase, and a message for people."""

    reason: str
    message: str


class JobKinds:
    """The kinds of jobs that an installation knows."""

    def __init__(self, rows: Iterable[JobKind]) -> None:
        self._rows = {(row.api_kind.group, row.api_kind.kind): row for row in rows}

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self._rows.values())

    def find(self, group: str, kind: str) -> JobKind | None:
        """Return the rules for a kind, or None."""
        return self._rows.get((group, kind))


def of_reference(reference: Mapping[str, Any]) -> tuple[str, str]:
    """Return group and kind of a reference to a job.

    A reference that an earlier release wrote has neither, and is to a `batch/v1` Job.
    """
    group, _, _ = reference.get("apiVersion", kinds.JOB.api_version).rpartition("/")
    return group, reference.get("kind", kinds.JOB.kind)


def _has(job: Mapping[str, Any], sign: Sign) -> bool:
    """Whether the job has the sign. Another controller writes the job's status, which may have any shape."""
    if sign.fields:
        return all(_text(job, path) in values for path, values in sign.fields.items())
    listed = _value(job, "status.conditions")
    true = (
        (c for c in listed if isinstance(c, dict) and c.get("status") == "True")
        if isinstance(listed, list)
        else ()
    )
    return any(condition.get("type") == sign.condition for condition in true)


def _text(job: Mapping[str, Any], path: str) -> str:
    """Return the text at a path; empty if there is none, or another type of value."""
    value = _value(job, path)
    return value if isinstance(value, str) else ""


def _value(job: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path; None if there is none."""
    value: Any = job
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _names_output(pod: Object) -> bool:
    """Whether a container of the Pod has a value for `SLIPWAY_OUTPUT_DIR`."""
    variables = (v for c in pod["spec"].get("containers") or [] for v in c.get("env") or [])
    return any(v["name"] == names.OUTPUT_DIR_ENV and v.get("value") for v in variables)
