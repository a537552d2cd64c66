"""The status of a Job, for kubectl: counts, times and conditions. Pure."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from serving import clock
from serving.embedded.workloads.job import index_ranges
from serving.embedded.workloads.job.plan import JobProgress, JobSpec
from serving.embedded.workloads.pods import PodFacts
from serving.objects import Object
from serving.resources.kubernetes import conditions


def report(
    job: Object, spec: JobSpec, progress: JobProgress, pods: Sequence[PodFacts], now: dt.datetime
) -> Object:
    """Return the status; a condition whose status does not change is kept as it was stored."""
    old = job.get("status") or {}
    ended = progress.ending is not None  # Pods that outlive the end only count as terminating
    active = [] if ended else [p for p in pods if p.active and p.attempt is not None]
    status: dict[str, Any] = {
        "active": len(active),
        "ready": sum(p.ready for p in active),
        "terminating": sum(p.terminating and not p.finished for p in pods),
        "succeeded": len(progress.succeeded),
        "failed": len(progress.failed),
        "completedIndexes": index_ranges.render(progress.succeeded),
        "failedIndexes": index_ranges.render(progress.failed),
        "conditions": _conditions(old.get("conditions") or [], spec, progress, now),
    }
    if progress.started_at is not None:
        status["startTime"] = clock.rfc3339(progress.started_at)
    if progress.ending is not None and progress.ending.type == "Complete" and progress.ended_at is not None:
        status["completionTime"] = clock.rfc3339(progress.ended_at)
    return status


def _conditions(before: list[Object], spec: JobSpec, progress: JobProgress, now: dt.datetime) -> list[Object]:
    current: list[tuple[str, str, str, str]] = []
    if spec.suspend and progress.ending is None:
        current.append(("Suspended", "True", "JobSuspended", "Job suspended"))
    elif conditions.find(before, "Suspended") is not None:
        current.append(("Suspended", "False", "JobResumed", "Job resumed"))
    if (ending := progress.ending) is not None:
        # On a cluster this condition precedes the end until all Pods have ended; here both are set at once.
        first = "SuccessCriteriaMet" if ending.type == "Complete" else "FailureTarget"
        current += [(type_, "True", ending.reason, ending.message) for type_ in (first, ending.type)]
    result = []
    for type_, status, reason, message in current:
        old = conditions.find(before, type_)
        if old is not None and old["status"] == status:
            result.append(dict(old))
            continue
        stamp = clock.rfc3339(now)
        result.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastProbeTime": stamp,
                "lastTransitionTime": stamp,
            }
        )
    return result
