"""What a Job's status says: the counts, times and conditions that `kubectl get`, `wait` and `describe` read."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from serving.embedded.workloads.job import index_ranges
from serving.embedded.workloads.job.plan import Progress, Wanted
from serving.embedded.workloads.pods import PodState
from serving.objects import Object
from serving.resources import conditions


def report(
    job: Object, want: Wanted, progress: Progress, pods: Sequence[PodState], now: dt.datetime
) -> Object:
    """Return the status; conditions that hold stay as they are."""
    old = job.get("status") or {}
    ended = progress.ending is not None
    active = [] if ended else [p for p in pods if p.active and p.attempt is not None]
    status: dict[str, Any] = {
        "active": len(active),
        "ready": sum(p.ready for p in active),
        "terminating": sum(p.terminating and not p.finished for p in pods),
        "succeeded": len(progress.succeeded),
        "failed": len(progress.failed),
        "completedIndexes": index_ranges.render(progress.succeeded),
        "failedIndexes": index_ranges.render(progress.failed),
        "conditions": _conditions(old.get("conditions") or [], want, progress, now),
    }
    if progress.started_at is not None:
        status["startTime"] = _stamp(progress.started_at)
    if progress.ending is not None and progress.ending.type == "Complete" and progress.ended_at is not None:
        status["completionTime"] = _stamp(progress.ended_at)
    return status


def _conditions(before: list[Object], want: Wanted, progress: Progress, now: dt.datetime) -> list[Object]:
    said: list[tuple[str, str, str, str]] = []
    if want.suspend and progress.ending is None:
        said.append(("Suspended", "True", "JobSuspended", "Job suspended"))
    elif conditions.find(before, "Suspended") is not None:
        said.append(("Suspended", "False", "JobResumed", "Job resumed"))
    if (ending := progress.ending) is not None:
        first = "SuccessCriteriaMet" if ending.type == "Complete" else "FailureTarget"
        said += [(type_, "True", ending.reason, ending.message) for type_ in (first, ending.type)]
    result = []
    for type_, status, reason, message in said:
        found = conditions.find(before, type_)
        if found is not None and found["status"] == status:
            result.append(dict(found))
            continue
        stamp = _stamp(now)
        result.append(
            {"type": type_, "status": status, "reason": reason, "message": message,
             "lastProbeTime": stamp, "lastTransitionTime": stamp}
        )  # fmt: skip
    return result


def _stamp(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
