"""The status of a Pod, as the kubelet reports it: phase, conditions, container statuses. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from serving import clock
from serving.embedded.kubelet.pod import start_trace
from serving.embedded.kubelet.pod.lifecycle import (
    Container,
    ContainerExit,
    ContainerRun,
    RestartPolicy,
    init_done,
    phase,
)
from serving.embedded.pod_spec import termination_fields
from serving.embedded.pod_spec.container_id import container_id
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.resources import names
from serving.resources.kubernetes import container_statuses, pod_phases
from serving.resources.kubernetes.conditions import find

ISOLATED = "slipway.dev/Isolated"
"""Condition of a Pod whose isolation lacks a part; always False, and absent with the whole isolation."""
NOT_ISOLATED = "the node runs as an ordinary user: Pods are not kept apart from each other"
ConditionState = tuple[str, bool, str, str]
"""A condition without its times: type, whether the status is True, reason, message."""


def _terminated(
    uid: str, name: str, run: ContainerRun, exit_: ContainerExit, message_bytes: int
) -> dict[str, Any]:
    """Return the state of a run that has ended; its message has at most `message_bytes` bytes."""
    body: dict[str, Any] = {"exitCode": exit_.code, "reason": exit_.reason}
    # On lines of their own, so that a reader can tell the node's message from the program's.
    message = "\n".join(filter(None, (exit_.message, exit_.termination_message)))
    if message:
        body["message"] = termination_fields.bounded(message, message_bytes)
    if exit_.signal:
        body["signal"] = exit_.signal
    if started := run.started_at or exit_.finished_at:
        body["startedAt"] = clock.rfc3339(started)
    if exit_.finished_at:
        body["finishedAt"] = clock.rfc3339(exit_.finished_at)
    return {"terminated": body | {"containerID": container_id(uid, name, run.index)}}


def _state(
    uid: str, c: Container, *, backing_off: bool, waiting_reason: str, message_bytes: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `state` and `lastState` of a container; before its first run it waits for `waiting_reason`."""

    def terminated(run: ContainerRun | None) -> dict[str, Any]:
        return _terminated(uid, c.name, run, run.exit, message_bytes) if run and run.exit else {}

    previous = terminated(c.previous_run)
    if c.run is not None and c.run.exit is None:
        started = c.run.started_at
        return {"running": {"startedAt": clock.rfc3339(started)} if started else {}}, previous
    latest = terminated(c.run)
    if c.blocked is not None:
        return {"waiting": {"reason": c.blocked.reason, "message": c.blocked.message}}, latest
    if backing_off:
        message = f"back-off restarting failed container {c.name}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, latest
    if latest:
        return latest, previous
    return {"waiting": {"reason": waiting_reason}}, previous


def _container(
    uid: str, c: Container, *, ready: bool, backing_off: bool, waiting_reason: str, message_bytes: int
) -> dict[str, Any]:
    state, last = _state(
        uid, c, backing_off=backing_off, waiting_reason=waiting_reason, message_bytes=message_bytes
    )
    body: dict[str, Any] = {
        "name": c.name,
        "image": c.image,
        "imageID": c.image,
        "ready": ready,
        "started": c.running and c.started,
        "restartCount": c.run.restart_count if c.run else 0,
        "state": state,
        "lastState": last,
    }
    if c.run is not None:
        body["containerID"] = container_id(uid, c.name, c.run.index)
    return body


def _conditions(
    current: Sequence[ConditionState], old: Sequence[Mapping[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Return the current conditions; one with the status of its `old` condition keeps the transition time."""
    result = []
    for type_, holds, reason, message in current:
        status = "True" if holds else "False"
        before = find(old, type_)
        unchanged = before is not None and before.get("status") == status
        body: dict[str, Any] = {"type": type_, "status": status}
        since = before.get("lastTransitionTime") if before is not None and unchanged else None
        body["lastTransitionTime"] = since or clock.rfc3339(now)  # another writer may have omitted the time
        if reason:
            body["reason"] = reason
        if message:
            body["message"] = message
        result.append(body)
    return result


def is_starting(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a status only reports progress of a Pod's first start, so that its write may be delayed."""
    if after["phase"] not in ("Pending", "Running"):
        return False
    ready_before, ready_now = (find(status.get("conditions"), "Ready") or {} for status in (before, after))
    if ready_before.get("status") == "True" or ready_now.get("reason") != "ContainersNotReady":
        return False
    return all(map(_is_first_start, container_statuses.of(after)))


def _is_first_start(container: Mapping[str, Any]) -> bool:
    waiting = container["state"].get("waiting") or {}
    return (
        "terminated" not in container["state"]
        and not container["restartCount"]
        and waiting.get("reason", "ContainerCreating") in container_statuses.STARTING
    )


def ready(mains: Sequence[Container], *, terminating: bool) -> bool:
    """Whether the Pod takes traffic."""
    return not terminating and bool(mains) and all(c.running and c.ready for c in mains)


def _initialized(inits: Sequence[Container], mains: Sequence[Container]) -> bool:
    # The containers start only after all init containers have succeeded.
    return init_done(inits) or any(c.run for c in mains)


def _pod_conditions(
    now_phase: str, inits: Sequence[Container], mains: Sequence[Container], *, terminating: bool
) -> list[ConditionState]:
    """Return the conditions that every Pod has, as the kubelet and the scheduler write them."""
    over = now_phase in pod_phases.ENDED
    if _initialized(inits, mains):
        initialized = ("Initialized", True, "", "")
    else:
        message = "init containers have not all succeeded"
        initialized = ("Initialized", False, "ContainersNotInitialized", message)
    if ready(mains, terminating=terminating):
        readiness = (True, "", "")
    elif over:
        readiness = (False, "PodCompleted" if now_phase == "Succeeded" else "PodFailed", "")
    elif terminating:
        readiness = (False, "Terminating", "")
    else:
        unready = [c.name for c in mains if not (c.running and c.ready)]
        readiness = (False, "ContainersNotReady", f"not ready: {', '.join(unready)}")
    scheduled = ("PodScheduled", True, "", "")
    return [scheduled, initialized, ("ContainersReady", *readiness), ("Ready", *readiness)]


def _containers(
    uid: str,
    inits: Sequence[Container],
    mains: Sequence[Container],
    *,
    terminating: bool,
    backing_off: Sequence[str],
) -> dict[str, Any]:
    """Return the fields of the status about containers."""

    def container_status(c: Container, waiting_reason: str, *, is_ready: bool) -> dict[str, Any]:
        return _container(
            uid,
            c,
            ready=is_ready,
            backing_off=c.name in backing_off,
            waiting_reason=waiting_reason,
            message_bytes=termination_fields.POD_BYTES // (len(inits) + len(mains)),
        )

    waiting_reason = "ContainerCreating" if _initialized(inits, mains) else "PodInitializing"
    fields = {
        "containerStatuses": [
            container_status(c, waiting_reason, is_ready=c.running and c.ready and not terminating)
            for c in mains
        ]
    }
    if inits:
        fields["initContainerStatuses"] = [
            container_status(c, "PodInitializing", is_ready=init_done([c])) for c in inits
        ]
    return fields


def status(
    uid: str,
    policy: RestartPolicy,
    inits: Sequence[Container],
    mains: Sequence[Container],
    *,
    identity: PodIdentity,
    qos_class: str,
    now: datetime,
    old: Mapping[str, Any],
    terminating: bool,
    backing_off: Sequence[str],
    not_enforced: str,
    limited: bool,
    not_filtered: str = "",
    trace: start_trace.StartTrace | None = None,
) -> dict[str, Any]:
    """Return the status of a Pod.

    Args:
        uid: the uid of the Pod.
        policy: restartPolicy.
        inits: init containers, in order.
        mains: containers, in order.
        identity: the Pod's address and user.
        qos_class: of `pod_spec.qos`.
        now: the transition time of conditions that change.
        old: the previous status, whose transition times and startTime are kept.
        terminating: whether the Pod is being deleted, and therefore not ready.
        backing_off: names of containers that wait for a restart.
        not_enforced: which limits the node does not enforce, and why; empty if it enforces all.
        limited: whether a container has a limit.
        not_filtered: why the containers' system calls are not filtered; empty if they are.
        trace: the trace of its last start by this agent; None keeps the condition of `old`.
    """
    now_phase = phase(policy, inits, mains)
    conditions = _pod_conditions(now_phase, inits, mains, terminating=terminating)
    if limited or not_enforced:
        reason = "NotEnforced" if not_enforced else "Enforced"
        conditions.append((names.LIMITS_ENFORCED_CONDITION, not not_enforced, reason, not_enforced))
    if identity.user is None:
        message = f"{NOT_ISOLATED}; {not_filtered}" if not_filtered else NOT_ISOLATED
        conditions.append((ISOLATED, False, "OrdinaryUser", message))
    elif not_filtered:
        conditions.append((ISOLATED, False, "SystemCallsNotFiltered", not_filtered))
    before = old.get("conditions") or []
    conditions += start_trace.kept(before) if trace is None else [start_trace.condition(trace)]
    return {
        "phase": now_phase,
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": identity.address,
        "podIPs": [{"ip": identity.address}],
        "startTime": old.get("startTime") or clock.rfc3339(now),
        "qosClass": qos_class,
        "conditions": _conditions(conditions, before, now),
        **_containers(uid, inits, mains, terminating=terminating, backing_off=backing_off),
    }
