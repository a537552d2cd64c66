"""The status of a Deployment, for `kubectl rollout status` and `kubectl wait` as on a cluster. Pure.

Reasons and messages are those of k8s.io/kubernetes/pkg/controller/deployment (progress.go,
util/deployment_util.go). Reasons keep the word ReplicaSet, as tools compare them; messages have Revision.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving import clock
from serving.embedded.workloads.deployment.plan import DeploymentSpec
from serving.embedded.workloads.pods import PodFacts, parse_time
from serving.objects import Object
from serving.resources.kubernetes import conditions

COMPLETE = "NewReplicaSetAvailable"
PROGRESSED = "ReplicaSetUpdated"
STARTED = "NewReplicaSetCreated"
EXCEEDED = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"
_STARTING = {"Available": "False", "Progressing": "True"}
"""The status of each condition, by type, that a Deployment without a stored status counts as having."""


@dataclass(frozen=True)
class StatusReport:
    """The status to write, and the time until it changes without an event, if it does."""

    status: Object
    requeue_after: dt.timedelta | None = None

    @property
    def exceeded(self) -> bool:
        """Whether the rollout has exceeded its deadline."""
        return has_exceeded(self.status)


def has_exceeded(status: Mapping[str, Any]) -> bool:
    """Whether the rollout of a status has exceeded its deadline."""
    progressing = conditions.find(status.get("conditions"), "Progressing")
    return progressing is not None and progressing["reason"] == EXCEEDED


def may_wait(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the write of `new` over `old` may wait, as a ready Pod is about to change the status again.

    It may while Pods are unavailable, if neither the numbers of ready and available Pods nor the status of a
    condition differ.
    """
    if new["unavailableReplicas"] == 0:
        return False
    if any(int(old.get(count) or 0) != new[count] for count in ("readyReplicas", "availableReplicas")):
        return False
    before = {condition["type"]: condition["status"] for condition in old.get("conditions") or []}
    after = {condition["type"]: condition["status"] for condition in new["conditions"]}
    return {**_STARTING, **before} == {**_STARTING, **after}


def report(
    deployment: Object,
    spec: DeploymentSpec,
    pods: Sequence[PodFacts],
    now: dt.datetime,
    *,
    failure: str,
) -> StatusReport:
    """Return the status.

    Args:
        deployment: the stored Deployment, whose status is the base of progress.
        spec: the spec of the Deployment.
        pods: all Pods that it owns.
        now: UTC.
        failure: why the last Pod could not be created, or empty.
    """
    old = deployment.get("status") or {}
    counts = _counts(spec, pods, now)
    before = old.get("conditions") or []
    progressing, requeue = _progressing(old, counts, spec, now)
    current = [_available(counts, spec), progressing]
    if failure:
        current.append(_condition("ReplicaFailure", "True", "FailedCreate", failure))
    merged = [_with_times(before, condition, now) for condition in current]
    generation = deployment["metadata"].get("generation", 1)
    return StatusReport({"observedGeneration": generation, **counts, "conditions": merged}, requeue)


def _counts(spec: DeploymentSpec, pods: Sequence[PodFacts], now: dt.datetime) -> dict[str, int]:
    active = [p for p in pods if p.active]
    available = sum(p.available(spec.min_ready_seconds, now) for p in active)
    return {
        "replicas": len(active),
        "updatedReplicas": sum(p.template_hash == spec.template_hash for p in active),
        "readyReplicas": sum(p.ready for p in active),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(spec.replicas, len(active)) - available),
    }


def _condition(type_: str, status: str, reason: str, message: str, **more: Any) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message, **more}


def _available(counts: dict[str, int], spec: DeploymentSpec) -> Object:
    least = spec.replicas if spec.recreate else spec.floor
    if counts["availableReplicas"] >= least:
        message = "Deployment has minimum availability."
        return _condition("Available", "True", "MinimumReplicasAvailable", message)
    message = "Deployment does not have minimum availability."
    return _condition("Available", "False", "MinimumReplicasUnavailable", message)


def _progressing(
    old: Object, counts: dict[str, int], spec: DeploymentSpec, now: dt.datetime
) -> tuple[Object, dt.timedelta | None]:
    """Return the Progressing condition, and the time until its deadline; None if none runs."""
    before = conditions.find(old.get("conditions"), "Progressing")
    current = _without_deadline(before, old, counts, spec, now)
    if current["reason"] in (COMPLETE, EXCEEDED, PAUSED):
        return current, None  # after a complete rollout too: a Pod that dies then begins no deadline
    since = parse_time(current.get("lastUpdateTime")) or now
    remaining = since + dt.timedelta(seconds=spec.progress_deadline_seconds) - now
    if remaining > dt.timedelta(0):
        return current, remaining
    message = f'Revision "{spec.template_hash}" has timed out progressing.'
    return _condition("Progressing", "False", EXCEEDED, message, lastUpdateTime=clock.rfc3339(now)), None


def _without_deadline(
    before: Mapping[str, Any] | None,
    old: Object,
    counts: dict[str, int],
    spec: DeploymentSpec,
    now: dt.datetime,
) -> Object:
    """Return the Progressing condition without its deadline; a copy of `before` if nothing has changed."""
    reason_before = before["reason"] if before is not None else ""
    revision = f'Revision "{spec.template_hash}"'
    complete = counts["replicas"] == counts["updatedReplicas"] == counts["availableReplicas"] == spec.replicas
    if spec.paused:
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
        # As isCompleteDeployment of progress.go: a complete rollout does not begin again.
        is_over = reason_before == COMPLETE and counts["replicas"] == counts["updatedReplicas"]
        keep = is_over or not _progressed(old, counts)
    if keep and before is not None:
        return dict(before)
    return _condition("Progressing", status, reason, message, lastUpdateTime=clock.rfc3339(now))


def _progressed(old: Object, counts: dict[str, int]) -> bool:
    """Whether the counts are closer to the end of the rollout than those of the stored status `old`."""
    outdated_before = int(old.get("replicas") or 0) - int(old.get("updatedReplicas") or 0)
    outdated = counts["replicas"] - counts["updatedReplicas"]
    return (
        counts["updatedReplicas"] > int(old.get("updatedReplicas") or 0)
        or outdated < outdated_before
        or counts["readyReplicas"] > int(old.get("readyReplicas") or 0)
        or counts["availableReplicas"] > int(old.get("availableReplicas") or 0)
    )


def _with_times(before: list[Object], condition: Object, now: dt.datetime) -> Object:
    """Return the condition with the times of its last transition and of its last update."""
    stamp = clock.rfc3339(now)
    old = conditions.find(before, condition["type"])
    if old is None or old["status"] != condition["status"]:
        return {"lastUpdateTime": stamp, **condition, "lastTransitionTime": stamp}
    unchanged = old["reason"] == condition["reason"] and old["message"] == condition["message"]
    updated = old.get("lastUpdateTime", stamp) if unchanged else stamp
    return {
        **condition,
        "lastUpdateTime": condition.get("lastUpdateTime", updated),
        "lastTransitionTime": old.get("lastTransitionTime", stamp),
    }
