"""The state of a trial's replica, from its Deployment and Pod. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from serving.objects import Object, is_deleting
from serving.resources import names
from serving.resources.kubernetes import conditions, container_statuses
from serving.resources.tuning.trial import Reason

_DISRUPTION = "DisruptionTarget"
"""Condition of a Pod that is about to be ended for a cause outside of it, such as memory pressure of its node
or preemption: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions. A
Pod that exceeds its own limit of ephemeral storage is evicted without it."""


class _End(NamedTuple):
    """Why a replica has ended."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class TrialReplicaState:
    """The state of a trial's only replica."""

    state: Literal["starting", "ready", "ended"]
    reason: Reason = ""
    """Why the replica ended; empty while it has not."""
    message: str = ""
    """Why the replica ended, or why its start is delayed."""
    pod_uid: str = ""
    """Empty while there is no Pod, and once it was deleted."""
    address: str = ""
    """IP address of the Pod; empty unless the replica is ready."""
    restarts: int = 0
    """Restarts of the containers of a Pod in which one has ended; else 0."""


def state_of(deployment: Object | None, pods: Sequence[Object], pod_uid: str = "") -> TrialReplicaState:
    """Return the state of the trial's only replica.

    Args:
        deployment: of the trial.
        pods: of the trial.
        pod_uid: of the Pod that was ready, in whose place another Pod is an interruption; empty before.
    """
    existing = [pod for pod in pods if not is_deleting(pod) and pod_uid in ("", pod["metadata"]["uid"])]
    # The ReplicaSet replaces a Pod that a node rejected, and the rejected Pod remains in the API.
    current = [pod for pod in existing if not _rejection(pod)]
    if not current:
        rejection = _rejection(existing[0]) if existing else ""
        if pod_uid:
            return TrialReplicaState("ended", "Interrupted", rejection or "the Pod was deleted")
        # Beside a Pod, a ReplicaFailure would be of an earlier attempt to create it.
        deployment_conditions = ((deployment or {}).get("status") or {}).get("conditions")
        failure = conditions.find(deployment_conditions, "ReplicaFailure") or {}
        if failure.get("status") == "True":
            return TrialReplicaState("ended", "Refused", str(failure.get("message", "")))
        return TrialReplicaState("starting", message=rejection or "there is no Pod yet")
    return _state_of_pod(current[0])


def _rejection(pod: Object) -> str:
    """Return why the Pod's node rejected it before any container ran; empty if it did not."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed" or any(_end(each) for each in _containers(status)):
        return ""
    return f"{status.get('reason') or 'Failed'}: {status.get('message') or 'the node rejected the Pod'}"


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of a Pod's containers without the init containers that are done."""
    init_containers = [each for each in status.get("initContainerStatuses") or [] if not _is_done(each)]
    return [*init_containers, *(status.get("containerStatuses") or [])]


def _state_of_pod(pod: Object) -> TrialReplicaState:
    status = pod.get("status") or {}
    containers = _containers(status)
    pod_uid = pod["metadata"]["uid"]
    for container in containers:
        if (end := _end(container)) is not None:
            if end.reason == "Crashed" and (disruption := _disruption(status)):
                end = _End("Interrupted", disruption)
            restarts = sum(int(each.get("restartCount") or 0) for each in containers)
            return TrialReplicaState("ended", end.reason, end.message, pod_uid, restarts=restarts)
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    if ready.get("status") == "True" and status.get("podIP"):
        return TrialReplicaState("ready", pod_uid=pod_uid, address=status["podIP"])
    return TrialReplicaState("starting", message=_delay(status, containers), pod_uid=pod_uid)


def _disruption(status: Mapping[str, Any]) -> str:
    """Return for which cause outside of it a Pod with this status was ended; empty without such a cause.

    The kubelet of a node that is short of a resource evicts Pods that use more of it than they have
    requested, which is their own fault. A Pod whose requests are its limits (Guaranteed) does not use more.
    """
    condition = conditions.find(status.get("conditions"), _DISRUPTION) or {}
    is_own_fault = (
        condition.get("reason") == "TerminationByKubelet" and status.get("qosClass") != "Guaranteed"
    )
    if condition.get("status") != "True" or is_own_fault:
        return ""
    return f"{condition.get('reason')}: {condition.get('message')}"


def _is_done(init_container: Mapping[str, Any]) -> bool:
    """Whether an init container has ended with exit code 0, after which the other containers start."""
    ended = (init_container.get("state") or {}).get("terminated") or {}
    return bool(ended.get("exitCode") == 0)


def _end(container: Mapping[str, Any]) -> _End | None:
    """Return why a container has ended, even if it was restarted since; None if it has not.

    A running container whose last run succeeded has not ended either while its node counts no restart. A
    counted restart is an end, as it interrupts the measurement.
    """
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    if ended is None:
        restarted = int(container.get("restartCount") or 0)
        return _End("Crashed", "the container was restarted") if restarted else None
    if ended.get("reason") in container_statuses.ENDED_WITH_THE_NODE:
        return _End("Interrupted", str(ended.get("message") or "the machine was restarted"))
    if ended.get("reason") == "Completed" and not container.get("restartCount") and "running" in state:
        return None
    detail = f": {ended['message']}" if ended.get("message") else ""
    if ended.get("reason") == "OOMKilled":
        return _End(
            "OutOfMemory",
            f"container {container['name']} was killed for exceeding its memory limit{detail}",
        )
    signal = f", signal {ended['signal']}" if ended.get("signal") else ""
    return _End(
        "Crashed",
        f"container {container['name']} ended with exit code {ended.get('exitCode')}{signal}{detail}",
    )


def _delay(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why the start of a Pod with this status is delayed."""
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or "no node takes the Pod")
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting:
            return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
    return "it does not answer its readiness probe"


def not_enforced(pod: Object | None) -> str:
    """Return the node's message about limits that it cannot enforce; empty if it enforces all."""
    pod_conditions = ((pod or {}).get("status") or {}).get("conditions")
    condition = conditions.find(pod_conditions, names.LIMITS_ENFORCED_CONDITION) or {}
    return (
        str(condition.get("message") or condition.get("reason")) if condition.get("status") == "False" else ""
    )


def of_trial(pod: Object) -> str:
    """Return the name of the Pod's trial."""
    name: str = pod["metadata"]["labels"].get(names.TRIAL_LABEL, "")
    return name
