"""Decides the next step of a Job: attempts to start, Pods to delete, and its end. Pure.

Every Pod of a Job is an attempt with a number, from which its name follows, so that no attempt starts twice.
Each finished attempt is counted once, by number, in `status.completedIndexes` and
`status.failedIndexes` (which Kubernetes uses for Indexed Jobs only), so that the counts outlive the
Pods. An attempt whose Pod was deleted before it finished is not counted, and starts again. A number is
skipped if a Pod of another owner has its name.
"""

import datetime as dt
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from serving.backoff import backoff_seconds
from serving.embedded.workloads import naming
from serving.embedded.workloads.job import index_ranges
from serving.embedded.workloads.pods import BURST_REPLICAS, PodFacts, deletion_order, parse_time
from serving.objects import Object
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.events import EventToEmit

UNSUPPORTED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")
"""Fields of a Job's spec that are not supported, and fail the Job."""
LONGEST = dt.timedelta(days=36_500)
"""Cap of deadlines and times to live: the API accepts up to 2^63 - 1 s, more than a timedelta can hold."""


@dataclass(frozen=True)
class Backoff:
    """Delays of attempts after failures, in seconds: the first, which doubles, and the longest."""

    base: float
    cap: float

    def after(self, failures: int) -> dt.timedelta:
        """Return the delay after this number of failures (at least 1)."""
        return dt.timedelta(seconds=backoff_seconds(failures, self.base, self.cap))


@dataclass(frozen=True)
class JobEnd:
    """The end of a Job: the condition type (Complete or Failed), reason and message."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class JobSpec:
    """The spec of a Job with its defaults filled in; without `completions`, one success completes it."""

    name: str
    uid: str
    parallelism: int
    completions: int | None
    backoff_limit: int
    active_deadline: dt.timedelta | None
    ttl: dt.timedelta | None
    suspend: bool
    in_place: bool
    """restartPolicy OnFailure: restarts of containers count as failures."""
    unsupported: str


@dataclass(frozen=True)
class JobProgress:
    """The numbers of finished attempts, and the Job's end once it has ended."""

    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    started_at: dt.datetime | None = None
    ending: JobEnd | None = None
    ended_at: dt.datetime | None = None


@dataclass(frozen=True)
class JobPlan:
    """The progress to report, attempts to start, at most `BURST_REPLICAS`, Pods to delete, and the time until
    the next plan.
    """

    progress: JobProgress
    start: tuple[int, ...] = ()
    delete: tuple[PodFacts, ...] = ()
    remove_job: bool = False
    """Whether the Job has ended, and its time to live (`ttlSecondsAfterFinished`) has passed."""
    requeue_after: dt.timedelta | None = None
    events: tuple[EventToEmit, ...] = ()


def read_spec(job: Object) -> JobSpec:
    """Read the spec of a stored Job, with Kubernetes' defaults."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    limit = spec.get("backoffLimit")
    unsupported = [name for name in UNSUPPORTED if spec.get(name) is not None]
    if spec.get("completionMode") == "Indexed":
        unsupported.append("completionMode: Indexed")
    return JobSpec(
        name=job["metadata"]["name"],
        uid=job["metadata"]["uid"],
        parallelism=1 if parallelism is None else int(parallelism),
        completions=1 if parallelism is completions is None else completions,
        backoff_limit=6 if limit is None else int(limit),
        active_deadline=_seconds(spec.get("activeDeadlineSeconds")),
        ttl=_seconds(spec.get("ttlSecondsAfterFinished")),
        suspend=bool(spec.get("suspend")),
        in_place=spec["template"]["spec"].get("restartPolicy") == "OnFailure",
        unsupported=", ".join(unsupported),
    )


def _seconds(value: Any) -> dt.timedelta | None:
    return None if value is None else dt.timedelta(seconds=min(int(value), LONGEST.total_seconds()))


def progress(job: Object) -> JobProgress:
    """Read the progress from a stored status."""
    status = job.get("status") or {}
    ending = None
    ended_at = None
    for type_ in ("Complete", "Failed"):
        condition = conditions.find(status.get("conditions"), type_)
        if condition is not None and condition.get("status") == "True":
            ending = JobEnd(type_, condition.get("reason", ""), condition.get("message", ""))
            ended_at = parse_time(condition.get("lastTransitionTime"))
    return JobProgress(
        succeeded=index_ranges.parse(status.get("completedIndexes") or ""),
        failed=index_ranges.parse(status.get("failedIndexes") or ""),
        started_at=parse_time(status.get("startTime")),
        ending=ending,
        ended_at=ended_at,
    )


def attempt_name(spec: JobSpec, attempt: int) -> str:
    """Return the name of an attempt's Pod."""
    return naming.pod_name(spec.name, f"{spec.uid}/{attempt}")


def next_step(
    spec: JobSpec,
    before: JobProgress,
    pods: Sequence[PodFacts],
    now: dt.datetime,
    backoff: Backoff,
    *,
    taken: Container[str] = (),
) -> JobPlan:
    """Return the next step.

    Args:
        spec: the spec of the Job.
        before: the progress in its status.
        pods: all Pods that it owns; those without an attempt number are ignored.
        now: UTC.
        backoff: the delays of attempts after failures.
        taken: names of Pods of other owners.
    """
    attempts = [p for p in pods if p.attempt is not None]
    active = tuple(p for p in attempts if p.active)
    if before.ending is not None:
        return _over(spec, before, active, now)
    known = _count(before, attempts)
    ending = _ending(spec, known, attempts, now)
    if ending is not None:
        if ending.type == "Failed":
            known = replace(known, failed=known.failed | {p.attempt for p in active if p.attempt is not None})
        ended = replace(known, ending=ending, ended_at=now)
        return JobPlan(ended, delete=active, events=(_event(ending),))
    if spec.suspend:
        was_running = before.started_at is not None
        events = (EventToEmit("Suspended", "Job suspended"),) if was_running else ()
        return JobPlan(replace(known, started_at=None), delete=active, events=events)
    known = replace(known, started_at=known.started_at or now)
    return _next(spec, known, attempts, now, backoff, taken=taken)


def _event(ending: JobEnd) -> EventToEmit:
    if ending.type == "Complete":
        return EventToEmit("Completed", "Job completed")
    return EventToEmit(ending.reason, ending.message, "Warning")


def _over(spec: JobSpec, before: JobProgress, active: tuple[PodFacts, ...], now: dt.datetime) -> JobPlan:
    if spec.ttl is None or before.ended_at is None:
        return JobPlan(before, delete=active)
    remaining = before.ended_at + spec.ttl - now
    if remaining <= dt.timedelta(0):
        return JobPlan(before, delete=active, remove_job=True)
    return JobPlan(before, delete=active, requeue_after=remaining)


def _count(before: JobProgress, attempts: Sequence[PodFacts]) -> JobProgress:
    """Count finished attempts; a Pod that failed while it was being deleted does not count as failed."""
    succeeded = {p.attempt for p in attempts if p.phase == "Succeeded" and p.attempt is not None}
    failed = {
        p.attempt for p in attempts if p.phase == "Failed" and not p.terminating and p.attempt is not None
    }
    return replace(
        before,
        succeeded=before.succeeded | (succeeded - before.failed),
        failed=before.failed | (failed - before.succeeded),
    )


def _ending(
    spec: JobSpec, known: JobProgress, attempts: Sequence[PodFacts], now: dt.datetime
) -> JobEnd | None:
    if spec.unsupported:
        return JobEnd("Failed", "Unsupported", f"not supported on one machine: {spec.unsupported}")
    failures = len(known.failed)
    restarts = sum(p.restarts for p in attempts if p.active) if spec.in_place else 0
    # As pastBackoffLimitOnFailure of k8s.io/kubernetes/pkg/controller/job: a limit of 0 allows no restart.
    if failures > spec.backoff_limit or restarts >= max(spec.backoff_limit, 1):
        message = "Job has reached the specified backoff limit"
        return JobEnd("Failed", "BackoffLimitExceeded", message)
    if _complete(spec, known, attempts):
        return JobEnd("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    deadline = spec.active_deadline
    if deadline is not None and known.started_at is not None and known.started_at + deadline <= now:
        message = "Job was active longer than specified deadline"
        return JobEnd("Failed", "DeadlineExceeded", message)
    return None


def _complete(spec: JobSpec, known: JobProgress, attempts: Sequence[PodFacts]) -> bool:
    if spec.completions is not None:
        return len(known.succeeded) >= spec.completions
    running = any(not p.finished for p in attempts)
    return bool(known.succeeded) and not running


def _next(
    spec: JobSpec,
    known: JobProgress,
    attempts: Sequence[PodFacts],
    now: dt.datetime,
    backoff: Backoff,
    *,
    taken: Container[str],
) -> JobPlan:
    """Return the attempts to start and to delete, of a Job that has not ended."""
    active = [p for p in attempts if p.active]
    if spec.completions is not None:
        target = min(spec.parallelism, max(spec.completions - len(known.succeeded), 0))
    else:
        target = len(active) if known.succeeded else spec.parallelism
    due = []
    if spec.active_deadline is not None and known.started_at is not None:
        due.append(known.started_at + spec.active_deadline - now)
    spare = deletion_order(active)[: max(len(active) - target, 0)]
    leaving = sum(p.terminating and not p.finished for p in attempts)
    missing = max(target - len(active) - leaving, 0)
    delay = _delay(known, attempts, now, backoff)
    if missing and delay > dt.timedelta(0):
        due.append(delay)
        missing = 0
    if missing > BURST_REPLICAS:
        due.append(dt.timedelta(0))
        missing = BURST_REPLICAS
    used = known.succeeded | known.failed | {p.attempt for p in attempts}
    start: list[int] = []
    number = 0
    while len(start) < missing:
        if number not in used and attempt_name(spec, number) not in taken:
            start.append(number)
        number += 1
    return JobPlan(known, tuple(start), tuple(spare), requeue_after=min(due) if due else None)


def _delay(
    known: JobProgress, attempts: Sequence[PodFacts], now: dt.datetime, backoff: Backoff
) -> dt.timedelta:
    """Return the remaining back-off after the newest failure whose Pod exists; zero or less if it is over.

    After the clock was set back, failures may lie in the future. They delay nothing.
    """
    ends = [
        p.finished_at
        for p in attempts
        if p.attempt in known.failed and p.finished_at is not None and p.finished_at <= now
    ]
    if not ends:
        return dt.timedelta(0)
    return max(ends) + backoff.after(len(known.failed)) - now
