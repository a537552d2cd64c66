"""Columns of a Pod, as in printPod of k8s.io/kubernetes/pkg/printers/internalversion/printers.go."""

from datetime import datetime

from serving.objects import Object, is_deleting
from serving.resources.formats import ages


def ready(obj: Object, _now: datetime) -> str:
    """Return the number of ready containers and of all, such as `1/2`."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    count = sum(bool(status.get("ready")) and "running" in (status.get("state") or {}) for status in statuses)
    return f"{count}/{len((obj.get('spec') or {}).get('containers') or ())}"


def restarts(obj: Object, now: datetime) -> str:
    """Return the restarts, and the time since the last one; of init containers until all are done."""
    status = obj.get("status") or {}
    field = "initContainerStatuses" if _init_reason(obj, status) else "containerStatuses"
    statuses = status.get(field) or ()
    count = sum(status.get("restartCount", 0) for status in statuses)
    last_ends = [
        ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in statuses
    ]
    newest_end = max(filter(None, last_ends), default=None)
    return f"{count} ({ages.since(newest_end, now)} ago)" if count and newest_end else str(count)


def reason(obj: Object, _now: datetime) -> str:
    """Return the text under STATUS: the phase, or a more specific reason."""
    status = obj.get("status") or {}
    pod_reason = status.get("reason") or status.get("phase") or "Unknown"
    text = _init_reason(obj, status) or _container_reason(status, pod_reason)
    if is_deleting(obj):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(text)


def _init_reason(obj: Object, status: Object) -> str:
    """Return `Init:` and the state of the first init container that has not succeeded; empty if all have."""
    total = len((obj.get("spec") or {}).get("initContainers") or ())
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            return f"Init:{_termination_reason(terminated)}"
        waiting = (state.get("waiting") or {}).get("reason", "")
        return f"Init:{waiting}" if waiting not in ("", "PodInitializing") else f"Init:{index}/{total}"
    return ""


def _container_reason(status: Object, pod_reason: str) -> str:
    """Return the reason of the first container that waits or has ended, or else that of the Pod.

    `Completed` is replaced while another container runs.
    """
    text, running = pod_reason, False
    for container in reversed(status.get("containerStatuses") or []):  # so that the first one is the last set
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            text = state["waiting"]["reason"]
        elif "terminated" in state:
            text = _termination_reason(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        is_ready = any(
            c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()
        )
        return "Running" if is_ready else "NotReady"
    return text


def _termination_reason(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
