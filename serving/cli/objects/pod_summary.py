"""The summary of a Pod in `slipway describe pod`: the fields that its author set, and its state. Pure."""

from collections.abc import Iterator
from typing import Any

from serving.cli.objects import sections
from serving.objects import Object

_CONTAINER_FIELDS = ("image", "command", "args", "workingDir", "ports", "envFrom", "resources")
"""Fields of a container that are shown as they are."""


def of_pod(pod: Object) -> str:
    """Return node, phase, addresses and volumes, as YAML."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    fields = {
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "message": status.get("message"),
        "node": spec.get("nodeName"),
        "ip": status.get("podIP"),
        "started": status.get("startTime"),
        "restartPolicy": spec.get("restartPolicy"),
        "qosClass": status.get("qosClass"),
        "volumes": {volume["name"]: _source(volume) for volume in spec.get("volumes") or []},
    }
    return sections.document({key: value for key, value in fields.items() if value})


def containers(pod: Object) -> str:
    """Return each container as YAML: the fields that were set, its state and its restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    states = {
        entry["name"]: entry
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or []
    }
    shown = {
        container["name"]: dict(_fields(container, states.get(container["name"], {})))
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    }
    return sections.document(shown)


def _fields(container: Object, state: Object) -> Iterator[tuple[str, Any]]:
    for key in _CONTAINER_FIELDS:
        if container.get(key):
            yield key, container[key]
    if variables := {entry["name"]: _value(entry) for entry in container.get("env") or []}:
        yield "env", variables
    if mounts := {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or []}:
        yield "mounts", mounts
    if current := state.get("state"):
        yield "state", _state(current)
    if last := state.get("lastState"):
        yield "lastState", _state(last)
    if state:
        yield "ready", bool(state.get("ready"))
        yield "restarts", int(state.get("restartCount") or 0)


def _state(state: Object) -> Any:
    """Return `{running: {startedAt: ...}}` without empty fields and identifiers."""
    return {
        name: {
            key: value for key, value in detail.items() if key != "containerID" and value not in ("", None)
        }
        for name, detail in state.items()
    }


def _value(entry: Object) -> Any:
    """Return the value of a variable, or where it comes from."""
    return entry["valueFrom"] if "valueFrom" in entry else entry.get("value", "")


def _source(volume: Object) -> Any:
    return {key: value for key, value in volume.items() if key != "name"}
