"""What a Deployment's status says, such that `kubectl rollout status` and `kubectl wait` read it as on a cluster.

Reasons and texts of k8s.io/kubernetes/pkg/controller/deployment (progress.go, util/deployment_util.go); they say
ReplicaSet where tools compare them.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.workloads.deployment.plan import Wanted
from serving.embedded.workloads.pods import PodState, moment
from serving.objects import Object
from serving.resources import conditions

COMPLETE = "NewReplicaSetAvailable"
PROGRESSED = "ReplicaSetUpdated"
STARTED = "NewReplicaSetCreated"
EXCEEDED = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"


@dataclass(frozen=True)
class Report:
    """The status to write, and when it changes though nothing happens (None: never)."""

    status: Object
    requeue_after: dt.timedelta | None = None

    @property
    def exceeded(self) -> bool:
        """Whether the rollout has run out of time."""
        return has_exceeded(self.status)


def has_exceeded(status: Mapping[str, Any]) -> bool:
    """Whether a status says that the rollout has run out of time."""
    found = conditions.find(status.get("conditions"), "Progressing")
    return found is not None and found["reason"] == EXCEEDED


def report(
    deployment: Object,
    want: Wanted,
    pods: Sequence[PodState],
    now: dt.datetime,
    *,
    failure: str,
) -> Report:
    """Return the status.

    Args:
        deployment: as stored; its old status tells what is progress.
        want: what it asks for.
        pods: all Pods that it owns.
        now: UTC.
        failure: why the last Pod could not be created; empty when it could.
    """
    old = deployment.get("status") or {}
    counts = _counts(want, pods, now)
    before = old.get("conditions") or []
    progressing, requeue = _progressing(old, counts, want, now)
    said = [_available(counts, want), progressing]
    if failure:
        said.append(_said("ReplicaFailure", "True", "FailedCreate", failure))
    merged = [_timed(before, condition, now) for condition in said]
    generation = deployment["metadata"].get("generation", 1)
    return Report({"observedGeneration": generation, **counts, "conditions": merged}, requeue)


def _counts(want: Wanted, pods: Sequence[PodState], now: dt.datetime) -> dict[str, int]:
    active = [p for p in pods if p.active]
    available = sum(p.available(want.min_ready_seconds, now) for p in active)
    return {
        "replicas": len(active),
        "updatedReplicas": sum(p.template_hash == want.template_hash for p in active),
        "readyReplicas": sum(p.ready for p in active),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(want.replicas, len(active)) - available),
    }


def _said(type_: str, status: str, reason: str, message: str, **more: Any) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message, **more}


def _available(counts: dict[str, int], want: Wanted) -> Object:
    least = want.replicas if want.recreate else want.floor
    if counts["availableReplicas"] >= least:
        message = "Deployment has minimum availability."
        return _said("Available", "True", "MinimumReplicasAvailable", message)
    message = "Deployment does not have minimum availability."
    return _said("Available", "False", "MinimumReplicasUnavailable", message)


def _progressing(
    old: Object, counts: dict[str, int], want: Wanted, now: dt.datetime
) -> tuple[Object, dt.timedelta | None]:
    """Return the Progressing condition, and how long until its deadline passes."""
    before = conditions.find(old.get("conditions"), "Progressing")
    current = _phase(before, old, counts, want, now)
    if current["reason"] in (COMPLETE, EXCEEDED, PAUSED):
        return current, None  # a Pod that dies after the rollout is no rollout
    since = moment(current.get("lastUpdateTime")) or now
    left = since + dt.timedelta(seconds=want.progress_deadline_seconds) - now
    if left > dt.timedelta(0):
        return current, left
    message = f'Revision "{want.template_hash}" has timed out progressing.'
    return _said("Progressing", "False", EXCEEDED, message, lastUpdateTime=_stamp(now)), None


def _phase(
    before: Mapping[str, Any] | None, old: Object, counts: dict[str, int], want: Wanted, now: dt.datetime
) -> Object:  # fmt: skip
    """Return how far the rollout is; `before` itself where nothing has moved."""
    reason_before = before["reason"] if before is not None else ""
    revision = f'Revision "{want.template_hash}"'
    complete = counts["replicas"] == counts["updatedReplicas"] == counts["availableReplicas"] == want.replicas
    if want.paused:
        status, reason, message = "Unknown", PAUSED, "Deployment is paused"
        keep = reason_before in (PAUSED, EXCEEDED)
    elif complete:
        status, reason, message = "True", COMPLETE, f"{revision} has successfully progressed."
        keep = reason_before == COMPLETE and before is not None and before["message"] == message
    elif reason_before == PAUSED:
        status, reason, message, keep = "True", RESUMED, f"{revision} is being rolled out.", False
    elif before is None or revision not in before["message"]:
        status, reason, message, keep = "True", STARTED, f"{revision} is being rolled out.", False
    else:
        status, reason, message = "True", PROGRESSED, f"{revision} is progressing."
        keep = not _progressed(old, counts)
    if keep and before is not None:
        return dict(before)
    return _said("Progressing", status, reason, message, lastUpdateTime=_stamp(now))


def _progressed(old: Object, counts: dict[str, int]) -> bool:
    old_before = int(old.get("replicas") or 0) - int(old.get("updatedReplicas") or 0)
    return (
        counts["updatedReplicas"] > int(old.get("updatedReplicas") or 0)
        or counts["replicas"] - counts["updatedReplicas"] < old_before
        or counts["readyReplicas"] > int(old.get("readyReplicas") or 0)
        or counts["availableReplicas"] > int(old.get("availableReplicas") or 0)
    )


def _stamp(now: dt.datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _timed(before: list[Object], condition: Object, now: dt.datetime) -> Object:
    """Put times to a condition: the transition's moves with the status, the update's with anything."""
    stamp = _stamp(now)
    found = conditions.find(before, condition["type"])
    if found is None or found["status"] != condition["status"]:
        return {"lastUpdateTime": stamp, **condition, "lastTransitionTime": stamp}
    same = found["reason"] == condition["reason"] and found["message"] == condition["message"]
    updated = found.get("lastUpdateTime", stamp) if same else stamp
    return {
        **condition,
        "lastUpdateTime": condition.get("lastUpdateTime", updated),
        "lastTransitionTime": found.get("lastTransitionTime", stamp),
    }
