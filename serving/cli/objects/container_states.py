"""Why containers of a Pod do not run: the reasons and messages of their states, as sentences. Pure."""

from collections.abc import Iterator
from typing import Any

from serving.objects import Object
from serving.resources.kubernetes import conditions, container_statuses


def problems(pod: Object) -> list[str]:
    """Return a sentence for each container that is blocked or has failed.

    Without one, the sentence is about the Pod itself, if the Pod failed or no node takes it.
    """
    status = pod.get("status") or {}
    sentences = [sentence for entry in container_statuses.of(status) for sentence in _of_container(entry)]
    return sentences or list(_of_pod(status))


def _of_container(entry: Object) -> Iterator[str]:
    state = entry.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if waiting.get("reason", "") not in ("", *container_statuses.STARTING):
        yield f"container {entry['name']} waits: {_reason(waiting)}"
    elif ended.get("exitCode"):
        yield f"container {entry['name']} ended with exit code {ended['exitCode']}: {_reason(ended)}"


def _of_pod(status: Object) -> Iterator[str]:
    scheduled: Any = conditions.find(status.get("conditions"), "PodScheduled") or {}
    if status.get("phase") == "Failed":
        yield f"the Pod failed: {_reason(status)}"
    elif scheduled.get("status") == "False":
        yield f"no node takes the Pod: {_reason(scheduled)}"


def _reason(state: Object) -> str:
    reason = state.get("reason") or "no reason is known"
    message = " ".join(str(state.get("message") or "").split())
    return f"{reason}: {message}" if message else str(reason)
