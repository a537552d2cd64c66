"""Whether a revision's replicas can take traffic, and what its Pods say where they cannot.

A Deployment's status says how many replicas are ready and never why one is not: that stands in its Pods.
"""

from collections.abc import Mapping
from typing import Any

from serving.objects import Object
from serving.planning.inference.observed import Problem, World
from serving.resources import conditions

SCALED_TO_ZERO = "ScaledToZero"
WAKING = "Waking"
_ON_ITS_WAY = "ReplicasNotReady"
_STARTING = ("ContainerCreating", "PodInitializing")
_CRASHED = ("Completed", "Error")
"""Reasons of an end that say nothing beyond the exit code; a server has no business to end at all."""
_UNSEEN = "ContainerStatusUnknown"
"""An end that nobody saw: the machine was restarted, which says nothing of the container."""


def counts(deployment: Object | None) -> tuple[int, int]:
    """Return (wanted, ready) replicas."""
    if deployment is None:
        return 0, 0
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return wanted, (deployment.get("status") or {}).get("readyReplicas", 0)


def problem(world: World, name: str, *, everything: bool) -> Problem | None:
    """Return why this revision cannot take traffic: no replica (or, with `everything`, not every one) is ready."""
    deployment = world.deployments.get(name)
    wanted, ready = counts(deployment)
    if deployment is not None and ready >= (max(wanted, 1) if everything else 1):
        return None
    reason, said = _why(world, name, deployment)
    message = f"revision {name}: {ready} of {wanted} replicas ready"
    return Problem(reason, f"{message} ({said})" if said else message)


def at_zero(world: World, name: str) -> Problem | None:
    """Return in what state a proven revision is that may be at zero; None where it has a ready replica.

    At zero and on its way back it serves, as its requests wait; what keeps it from coming back is a problem.
    """
    deployment = world.deployments.get(name)
    wanted, ready = counts(deployment)
    if deployment is None or ready:
        return None
    if not wanted:
        return Problem(SCALED_TO_ZERO, f"revision {name}: the next request starts a replica")
    reason, _ = _why(world, name, deployment)
    return Problem(WAKING, f"revision {name}: a replica is starting") if reason == _ON_ITS_WAY else None


def _why(world: World, name: str, deployment: Object | None) -> tuple[str, str]:
    """Return reason and detail: what a Pod is in trouble with, else what the Deployment says."""
    pods = sorted(world.pods.get(name, ()), key=lambda pod: str(pod["metadata"]["name"]))
    found = next(filter(None, map(trouble, pods)), None)
    said = ((deployment or {}).get("status") or {}).get("conditions")
    progressing = conditions.find(said, "Progressing") or {}
    stuck = progressing.get("status") == "False"
    if found is not None:
        return "RevisionFailed" if stuck else found.reason, found.message
    refused = conditions.find(said, "ReplicaFailure") or {}
    if refused.get("status") == "True":
        return "RevisionFailed" if stuck else "ReplicaFailure", str(refused.get("message", ""))
    return ("RevisionFailed", str(progressing.get("message", ""))) if stuck else (_ON_ITS_WAY, "")


def trouble(pod: Mapping[str, Any]) -> Problem | None:
    """Return why a Pod does not get ready, in its status's words; None while it is ready or may only be slow.

    A container that has ended is in trouble even while it runs again, so that the reason does not come and go
    with every restart.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return None
    status = pod.get("status") or {}
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return Problem(str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message", "")))
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return next(filter(None, map(_container_trouble, containers)), None)


def _container_trouble(container: Mapping[str, Any]) -> Problem | None:
    if container.get("ready"):
        return None
    state = container.get("state") or {}
    named = f"container {container['name']}"
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if waiting.get("reason") not in (None, "CrashLoopBackOff", *_STARTING):
        return Problem(str(waiting["reason"]), f"{named}: {waiting.get('message', '')}".removesuffix(": "))
    if not ended or ended.get("reason") == _UNSEEN:
        return None
    reason = str(ended.get("reason") or "Error")
    detail = f": {ended['message']}" if ended.get("message") else ""
    message = f"{named} ended with exit code {ended.get('exitCode')}{detail}"
    return Problem("CrashLoopBackOff" if reason in _CRASHED else reason, message)
