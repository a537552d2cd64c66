"""What a Job does next: which attempts to start, which Pods to end, and whether it is over.

Every Pod of a Job is an attempt with a number; its name follows from the number, so that no attempt is started
twice. What finished is counted once, by number, in `status.completedIndexes` and `status.failedIndexes` (which
Kubernetes uses for Indexed Jobs only): counts outlive the Pods. An attempt whose Pod was deleted before it
finished is started again and counts as nothing.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from serving.embedded.workloads import naming
from serving.embedded.workloads.job import index_ranges
from serving.embedded.workloads.pods import PodState, moment
from serving.objects import Object
from serving.resources import conditions

UNSUPPORTED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")
"""Of a Job's spec: what cannot be honoured here fails the Job, rather than being ignored."""


@dataclass(frozen=True)
class Backoff:
    """Seconds before the next attempt after a failure: the first delay, doubling, and the longest."""

    base: float
    cap: float

    def after(self, failures: int) -> dt.timedelta:
        """Return the delay after so many failures, at least one."""
        return dt.timedelta(seconds=min(self.base * 2 ** min(failures - 1, 30), self.cap))


@dataclass(frozen=True)
class Ending:
    """How a Job ended: the condition type Complete or Failed, its reason and message."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Wanted:
    """What a Job asks for; `completions` None: one success ends it."""

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
class Progress:
    """What is known to be over: attempt numbers, and the ending once there is one."""

    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    started_at: dt.datetime | None = None
    ending: Ending | None = None
    ended_at: dt.datetime | None = None


@dataclass(frozen=True)
class Plan:
    """Attempts to start, Pods to delete, the progress to report, and when to look again (None: never)."""

    progress: Progress
    start: tuple[int, ...] = ()
    delete: tuple[PodState, ...] = ()
    remove_job: bool = False
    requeue_after: dt.timedelta | None = None
    events: tuple[tuple[str, str, bool], ...] = field(default=())
    """(reason, message, is a warning)."""


def wanted(job: Object) -> Wanted:
    """Read a stored Job; where it is silent, Kubernetes' defaults hold."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    limit = spec.get("backoffLimit")
    unsupported = [name for name in UNSUPPORTED if spec.get(name) is not None]
    if spec.get("completionMode") == "Indexed":
        unsupported.append("completionMode: Indexed")
    return Wanted(
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
    return None if value is None else dt.timedelta(seconds=int(value))


def progress(job: Object) -> Progress:
    """Read from a stored status what is over."""
    status = job.get("status") or {}
    ending = None
    ended_at = None
    for type_ in ("Complete", "Failed"):
        found = conditions.find(status.get("conditions"), type_)
        if found is not None and found.get("status") == "True":
            ending = Ending(type_, found.get("reason", ""), found.get("message", ""))
            ended_at = moment(found.get("lastTransitionTime"))
    return Progress(
        succeeded=index_ranges.parse(status.get("completedIndexes") or ""),
        failed=index_ranges.parse(status.get("failedIndexes") or ""),
        started_at=moment(status.get("startTime")),
        ending=ending,
        ended_at=ended_at,
    )


def attempt_name(want: Wanted, attempt: int) -> str:
    """Return the name of an attempt's Pod."""
    return naming.pod_name(want.name, f"{want.uid}/{attempt}")


def plan(
    want: Wanted, before: Progress, pods: Sequence[PodState], now: dt.datetime, backoff: Backoff
) -> Plan:
    """Return the next step.

    Args:
        want: what the Job asks for.
        before: what its status says.
        pods: all Pods that it owns; those without an attempt number do not count.
        now: UTC.
        backoff: between attempts after failures.
    """
    own = [p for p in pods if p.attempt is not None]
    active = tuple(p for p in own if p.active)
    if before.ending is not None:
        return _over(want, before, active, now)
    known = _count(before, own)
    ending = _ending(want, known, own, now)
    if ending is not None:
        if ending.type == "Failed":
            known = replace(known, failed=known.failed | {p.attempt for p in active if p.attempt is not None})
        ended = replace(known, ending=ending, ended_at=now)
        return Plan(ended, delete=active, events=(_event(ending),))
    if want.suspend:
        was_running = before.started_at is not None
        told = (("Suspended", "Job suspended", False),) if was_running else ()
        return Plan(replace(known, started_at=None), delete=active, events=told)
    return _next(want, replace(known, started_at=known.started_at or now), own, now, backoff)


def _event(ending: Ending) -> tuple[str, str, bool]:
    if ending.type == "Complete":
        return ("Completed", "Job completed", False)
    return (ending.reason, ending.message, True)


def _over(want: Wanted, before: Progress, active: tuple[PodState, ...], now: dt.datetime) -> Plan:
    if want.ttl is None or before.ended_at is None:
        return Plan(before, delete=active)
    left = before.ended_at + want.ttl - now
    if left <= dt.timedelta(0):
        return Plan(before, delete=active, remove_job=True)
    return Plan(before, delete=active, requeue_after=left)


def _count(before: Progress, own: Sequence[PodState]) -> Progress:
    """Count what has finished; a Pod that failed while it was being deleted was deleted, and did not fail."""
    succeeded = {p.attempt for p in own if p.phase == "Succeeded" and p.attempt is not None}
    failed = {p.attempt for p in own if p.phase == "Failed" and not p.terminating and p.attempt is not None}
    return replace(
        before,
        succeeded=before.succeeded | (succeeded - before.failed),
        failed=before.failed | (failed - before.succeeded),
    )


def _ending(want: Wanted, known: Progress, own: Sequence[PodState], now: dt.datetime) -> Ending | None:
    if want.unsupported:
        return Ending("Failed", "Unsupported", f"not supported on one machine: {want.unsupported}")
    failures = len(known.failed)
    restarts = sum(p.restarts for p in own if p.active) if want.in_place else 0
    over = restarts > 0 if want.backoff_limit == 0 else restarts >= want.backoff_limit
    if failures > want.backoff_limit or (restarts and over):
        message = "Job has reached the specified backoff limit"
        return Ending("Failed", "BackoffLimitExceeded", message)
    if _complete(want, known, own):
        return Ending("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    deadline = want.active_deadline
    if deadline is not None and known.started_at is not None and known.started_at + deadline <= now:
        message = "Job was active longer than specified deadline"
        return Ending("Failed", "DeadlineExceeded", message)
    return None


def _complete(want: Wanted, known: Progress, own: Sequence[PodState]) -> bool:
    if want.completions is not None:
        return len(known.succeeded) >= want.completions
    running = any(not p.finished for p in own)
    return bool(known.succeeded) and not running


def _next(want: Wanted, known: Progress, own: Sequence[PodState], now: dt.datetime, backoff: Backoff) -> Plan:
    """Start and end attempts of a Job that goes on."""
    active = [p for p in own if p.active]
    if want.completions is not None:
        target = min(want.parallelism, max(want.completions - len(known.succeeded), 0))
    else:
        target = len(active) if known.succeeded else want.parallelism
    due = []
    if want.active_deadline is not None and known.started_at is not None:
        due.append(known.started_at + want.active_deadline - now)
    spare = sorted(active, key=lambda p: (p.ready, p.created, p.name))[: max(len(active) - target, 0)]
    leaving = sum(p.terminating and not p.finished for p in own)
    missing = max(target - len(active) - leaving, 0)
    delay = _delay(known, own, now, backoff)
    if missing and delay > dt.timedelta(0):
        due.append(delay)
        missing = 0
    used = known.succeeded | known.failed | {p.attempt for p in own}
    start: list[int] = []
    number = 0
    while len(start) < missing:
        if number not in used:
            start.append(number)
        number += 1
    return Plan(known, tuple(start), tuple(spare), requeue_after=min(due) if due else None)


def _delay(known: Progress, own: Sequence[PodState], now: dt.datetime, backoff: Backoff) -> dt.timedelta:
    """Return how long to wait after the newest failure; nothing where its Pod is gone."""
    ends = [p.finished_at for p in own if p.attempt in known.failed and p.finished_at is not None]
    if not ends:
        return dt.timedelta(0)
    return max(ends) + backoff.after(len(known.failed)) - now
