"""A Pod in one word, as kubectl prints it: k8s.io/kubernetes/pkg/printers/internalversion/printers.go, printPod."""

from datetime import datetime

from serving.objects import Object
from serving.resources import ages


def ready(obj: Object, _now: datetime) -> str:
    """Return `ready/containers`."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    count = sum(bool(status.get("ready")) and "running" in (status.get("state") or {}) for status in statuses)
    return f"{count}/{len((obj.get('spec') or {}).get('containers') or ())}"


def restarts(obj: Object, now: datetime) -> str:
    """Return how often containers were restarted, and how long ago the last time was."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    count = sum(status.get("restartCount", 0) for status in statuses)
    ends = [
        ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in statuses
    ]
    last = max(filter(None, ends), default=None)
    return f"{count} ({ages.since(last, now)} ago)" if count and last else str(count)


def reason(obj: Object, _now: datetime) -> str:
    """Return the word under STATUS: the phase, unless something more telling is known."""
    status = obj.get("status") or {}
    word = status.get("reason") or status.get("phase") or "Unknown"
    init = _init_reason(obj, status)
    word = init or _container_reason(status, word)
    if "deletionTimestamp" in obj["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)


def _init_reason(obj: Object, status: Object) -> str:
    total = len((obj.get("spec") or {}).get("initContainers") or ())
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        waiting = (state.get("waiting") or {}).get("reason", "")
        return f"Init:{waiting}" if waiting not in ("", "PodInitializing") else f"Init:{index}/{total}"
    return ""


def _container_reason(status: Object, word: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            word = state["waiting"]["reason"]
        elif "terminated" in state:
            word = _ended(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        is_ready = any(
            c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()
        )
        return "Running" if is_ready else "NotReady"
    return word


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
