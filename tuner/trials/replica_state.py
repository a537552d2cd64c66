"""The state of a trial's replica, from its Deployment and Pod. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from serving.objects import Object, is_deleting
from serving.resources import conditions, names
from serving.resources.tuning.trial import Reason

_ENDED_WITH_THE_NODE = ("ContainerStatusUnknown", "NodeShutdown")
"""The machine was restarted, so that the container's end is unknown, or the node was shut down."""
_LIMITS_ENFORCED = "slipway.dev/LimitsEnforced"


@dataclass(frozen=True)
class TrialReplicaState:
    """The state of the replica."""

    state: Literal["starting", "ready", "ended"]
    reason: Reason = ""
    """Why the replica ended; empty while it has not."""
    message: str = ""
    """Why the replica ended, or what delays its start."""
    pod: str = ""
    """uid of the replica's Pod."""
    address: str = ""
    restarts: int = 0


def state_of(deployment: Object | None, pods: Sequence[Object], uid: str = "") -> TrialReplicaState:
    """Return the state of the trial's only replica.

    Args:
        deployment: of the trial.
        pods: of the trial.
        uid: of the Pod that was ready; another Pod in its place is an interruption.
    """
    ours = [pod for pod in pods if not uid or pod["metadata"]["uid"] == uid]
    ours = [pod for pod in ours if not is_deleting(pod)]
    if not ours:
        if uid:
            return TrialReplicaState("ended", "Interrupted", "the Pod was deleted")
        of_deployment = ((deployment or {}).get("status") or {}).get("conditions")
        failure = conditions.find(of_deployment, "ReplicaFailure") or {}
        if failure.get("status") == "True":  # with a Pod it is of an earlier attempt
            return TrialReplicaState("ended", "Refused", str(failure.get("message", "")))
        return TrialReplicaState("starting", message="there is no Pod yet")
    return _state_of_pod(ours[0])


def _state_of_pod(pod: Object) -> TrialReplicaState:
    status = pod.get("status") or {}
    initial = [each for each in status.get("initContainerStatuses") or [] if not _is_done(each)]
    containers = [*initial, *(status.get("containerStatuses") or [])]
    uid, restarts = pod["metadata"]["uid"], sum(int(c.get("restartCount") or 0) for c in containers)
    for container in containers:
        if (end := _end(container)) is not None:
            return TrialReplicaState("ended", *end, pod=uid, restarts=restarts)
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    if ready.get("status") == "True" and status.get("podIP"):
        return TrialReplicaState("ready", pod=uid, address=status["podIP"])
    return TrialReplicaState("starting", message=_delay(status, containers), pod=uid)


def _is_done(init_container: Mapping[str, Any]) -> bool:
    """Whether an init container has ended as it should: the servers start after it."""
    ended = (init_container.get("state") or {}).get("terminated") or {}
    return bool(ended.get("exitCode") == 0)


def _end(container: Mapping[str, Any]) -> tuple[Reason, str] | None:
    """Return reason and message of a container that has ended, even if it was restarted."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    if ended is None:
        restarted = int(container.get("restartCount") or 0)
        return ("Crashed", "the container was restarted") if restarted else None
    if ended.get("reason") in _ENDED_WITH_THE_NODE:
        return "Interrupted", str(ended.get("message") or "the machine was restarted")
    if ended.get("reason") == "Completed" and not container.get("restartCount") and "running" in state:
        return None
    detail = f": {ended['message']}" if ended.get("message") else ""
    if ended.get("reason") == "OOMKilled":
        return (
            "OutOfMemory",
            f"container {container['name']} was killed for exceeding its memory limit{detail}",
        )
    signal = f", signal {ended['signal']}" if ended.get("signal") else ""
    return (
        "Crashed",
        f"container {container['name']} ended with exit code {ended.get('exitCode')}{signal}{detail}",
    )


def _delay(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> str:
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
    condition = conditions.find(((pod or {}).get("status") or {}).get("conditions"), _LIMITS_ENFORCED) or {}
    return (
        str(condition.get("message") or condition.get("reason")) if condition.get("status") == "False" else ""
    )


def of_trial(pod: Object) -> str:
    """Return the name of the Pod's trial."""
    name: str = pod["metadata"]["labels"].get(names.TRIAL_LABEL, "")
    return name
