"""The replicas of a revision, and why they cannot take traffic.

A Deployment's status has the number of ready replicas. The reason why a replica is not ready is in
its Pod's status.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serving.objects import Object, is_deleting
from serving.planning.inference import model_volume
from serving.resources.kubernetes import conditions, container_statuses, pod_phases
from serving.resources.kubernetes.conditions import StatusReason
from serving.settings import DEFAULTS, RuntimeImageSettings

SCALED_TO_ZERO = "ScaledToZero"
WAKING = "Waking"
_NOT_READY = "ReplicasNotReady"
_CRASHED = ("Completed", "Error")
"""Generic reasons of a terminated container; a server must not exit at all."""
_OWN_REASON = re.compile(r"(?P<reason>[A-Z][A-Za-z]{1,63}): ")
"""Start of the last line of a runtime that cannot serve: `REASON: message`."""
_POD_SECURITY = "violates PodSecurity"
"""In the message of an API server that refuses a Pod by the Pod Security profile of its namespace."""
_REMEDY = (
    "set these fields in the predictor's template: runAsNonRoot and seccompProfile in securityContext, the"
    " others in containers[].securityContext"
)
_NO_IMAGE_VOLUMES = 'failed to mkdir ""'
"""Of containerd before 2.1, which takes an image volume for a directory without a name. The rest of the
message has an ID that every attempt changes."""
_NO_KNOWN_PROBLEM = StatusReason(_NOT_READY)
"""Replicas that may only be slow."""


@dataclass(frozen=True)
class RevisionReplicas:
    """Numbers of replicas of one revision."""

    desired: int = 0
    """`spec.replicas` of the Deployment."""
    existing: int = 0
    """Replicas that exist."""
    ready: int = 0
    has_present_template: bool = True
    """Whether every counted replica has the Deployment's present template."""
    unready_reason: StatusReason = _NO_KNOWN_PROBLEM
    """Why replicas are not ready, as their Pods or the Deployment report it."""


def read(
    deployment: Object, pods: Iterable[Object], images: RuntimeImageSettings = DEFAULTS.runtime_images
) -> RevisionReplicas:
    """Return the state of the replicas of a Deployment with these Pods."""
    status = deployment.get("status") or {}
    desired = (deployment.get("spec") or {}).get("replicas", 1)
    ready = status.get("readyReplicas", 0)
    existing = status.get("replicas", 0)
    counts = RevisionReplicas(desired, existing, ready, _has_present_template(deployment, existing))
    if ready >= max(desired, 1):
        return counts
    return replace(counts, unready_reason=_why_unready(status, pods, images))


def _has_present_template(deployment: Object, existing: int) -> bool:
    """Whether none of the counted replicas can be of an earlier Pod template."""
    status = deployment.get("status") or {}
    generation = (deployment.get("metadata") or {}).get("generation", 0)
    is_observed = status.get("observedGeneration", generation) >= generation
    # An API server leaves out a count of 0. A status without `observedGeneration` is taken as up to date.
    updated = status.get("updatedReplicas", 0 if "observedGeneration" in status else existing)
    return bool(is_observed and updated >= existing)


def problem(name: str, state: RevisionReplicas | None, *, all_ready: bool) -> StatusReason | None:
    """Return why this revision cannot take traffic, or None.

    It needs one ready replica; with `all_ready`, every desired one.
    """
    if state is not None and state.ready >= (max(state.desired, 1) if all_ready else 1):
        return None
    state = state or RevisionReplicas()
    message = f"revision {name}: {state.ready} of {state.desired} replicas ready"
    detail = state.unready_reason.message
    return StatusReason(state.unready_reason.reason, f"{message} ({detail})" if detail else message)


def at_zero(name: str, state: RevisionReplicas | None) -> StatusReason | None:
    """Return the state of a proven revision that may be at zero, if it has no ready replica.

    At zero, and while a replica starts, the revision serves: its requests wait. None if it has a ready
    replica, or if the replica cannot start, which is a problem.
    """
    if state is None or state.ready:
        return None
    if not state.desired:
        return StatusReason(SCALED_TO_ZERO, f"revision {name}: the next request starts a replica")
    if state.unready_reason.reason != _NOT_READY:
        return None
    return StatusReason(WAKING, f"revision {name}: a replica is starting")


def _why_unready(
    status: Mapping[str, Any], pods: Iterable[Object], images: RuntimeImageSettings
) -> StatusReason:
    """Return the first problem of a Pod, else that a Pod copies the model, else the Deployment's problem.

    Finished Pods do not count: each was replaced, and a cluster keeps evicted ones for weeks.
    """
    unfinished = [pod for pod in pods if not pod_phases.has_ended(pod)]
    by_name = sorted(unfinished, key=lambda pod: str(pod["metadata"]["name"]))
    problems = filter(None, (pod_problem(pod, images) for pod in by_name))
    copies = filter(None, map(copying, by_name))
    pod_reason = next(problems, None) or next(copies, None)
    deployment_conditions = status.get("conditions")
    progressing = conditions.find(deployment_conditions, "Progressing") or {}
    timed_out = progressing.get("status") == "False"
    if pod_reason is not None:
        return StatusReason("RevisionFailed" if timed_out else pod_reason.reason, pod_reason.message)
    failure = conditions.find(deployment_conditions, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        message = str(failure.get("message", ""))
        if _POD_SECURITY in message:
            message = f"{message}; {_REMEDY}"
        return StatusReason("RevisionFailed" if timed_out else "ReplicaFailure", message)
    if timed_out:
        return StatusReason("RevisionFailed", str(progressing.get("message", "")))
    return _NO_KNOWN_PROBLEM


def pod_problem(
    pod: Mapping[str, Any], images: RuntimeImageSettings = DEFAULTS.runtime_images
) -> StatusReason | None:
    """Return why a Pod does not become ready; None while it is ready or may only be slow.

    A container that has ended is a problem even while it runs again, so that the reason does not change with
    every restart.
    """
    if is_deleting(pod):
        return None
    status = pod.get("status") or {}
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return StatusReason(
            str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message", ""))
        )
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    problems = (_container_problem(container, node, images) for container in container_statuses.of(status))
    return next(filter(None, problems), None)


def copying(pod: Mapping[str, Any]) -> StatusReason | None:
    """Return that a Pod's init container copies the model, which may take long; None if it does not."""
    for container in (pod.get("status") or {}).get("initContainerStatuses") or []:
        if container["name"] == model_volume.COPIER and "running" in (container.get("state") or {}):
            return StatusReason(_NOT_READY, f"container {model_volume.COPIER}: copies the model")
    return None


def _container_problem(
    container: Mapping[str, Any], node: str, images: RuntimeImageSettings
) -> StatusReason | None:
    if container.get("ready"):
        return None
    state = container.get("state") or {}
    label = f"container {container['name']}"
    waiting = state.get("waiting") or {}
    terminated = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if _NO_IMAGE_VOLUMES in str(waiting.get("message")):
        return StatusReason(
            "ImageVolumesUnsupported",
            f"{label}: the container runtime of node {node} cannot mount the model, as it has no image"
            " volumes (containerd has them from 2.1 on)",
        )
    if waiting.get("reason") not in (None, "CrashLoopBackOff", *container_statuses.STARTING):
        message = f"{label}: {waiting.get('message', '')}".removesuffix(": ")
        return StatusReason(str(waiting["reason"]), message)
    if not terminated or terminated.get("reason") in container_statuses.ENDED_WITH_THE_NODE:
        return None
    is_runtime = str(container.get("image", "")).startswith(f"{images.prefix}/")
    return _end(label, terminated, is_runtime=is_runtime)


def _end(label: str, terminated: Mapping[str, Any], *, is_runtime: bool) -> StatusReason:
    """Return why a container ended.

    If the container crashed, the last line of its message is the last line of its log, which has the reason.
    Any other reason is the node's, and the first line of the message explains it.
    """
    reason = str(terminated.get("reason") or "Error")
    lines = [line.strip() for line in str(terminated.get("message") or "").splitlines() if line.strip()]
    has_crashed = reason in _CRASHED
    detail = ""
    if lines:
        detail = lines[-1] if has_crashed else lines[0]
    message = f"{label} ended with exit code {terminated.get('exitCode')}{detail and f': {detail}'}"
    if not has_crashed:
        return StatusReason(reason, message)
    own = _OWN_REASON.match(detail) if is_runtime else None
    return StatusReason(own["reason"] if own else "CrashLoopBackOff", message)
