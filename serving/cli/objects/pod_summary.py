"""The sections Pod and Containers of `slipway describe pod`: fields of the spec and of the status. Pure."""

from collections.abc import Iterator
from typing import Any

from serving.cli.objects import sections
from serving.objects import Object
from serving.resources.kubernetes import container_statuses

_CONTAINER_FIELDS = ("image", "command", "args", "workingDir", "ports", "envFrom", "resources")
"""Fields of a container's spec that are shown unchanged."""


def of_pod(pod: Object) -> str:
    """Return the fields that concern the whole Pod as YAML, without empty ones."""
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
        "volumes": {volume["name"]: _volume_source(volume) for volume in spec.get("volumes") or []},
    }
    return sections.document({key: value for key, value in fields.items() if value})


def containers(pod: Object) -> str:
    """Return each container by its name, init containers first, as YAML: its spec, state and restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = {entry["name"]: entry for entry in container_statuses.of(status)}
    shown = {
        container["name"]: dict(_fields(container, statuses.get(container["name"], {})))
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    }
    return sections.document(shown)


def _fields(container: Object, status: Object) -> Iterator[tuple[str, Any]]:
    """Yield the shown fields of a container; `status` is its container status, empty before its first one."""
    for key in _CONTAINER_FIELDS:
        if container.get(key):
            yield key, container[key]
    if variables := {entry["name"]: _variable(entry) for entry in container.get("env") or []}:
        yield "env", variables
    if mounts := {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or []}:
        yield "mounts", mounts
    if state := status.get("state"):
        yield "state", _state(state)
    if last_state := status.get("lastState"):
        yield "lastState", _state(last_state)
    if status:
        yield "ready", bool(status.get("ready"))
        yield "restarts", int(status.get("restartCount") or 0)


def _state(state: Object) -> Any:
    """Return a state, such as `{running: {startedAt: ...}}`, without `containerID` and empty fields."""
    return {
        name: {
            key: value for key, value in detail.items() if key != "containerID" and value not in ("", None)
        }
        for name, detail in state.items()
    }


def _variable(entry: Object) -> Any:
    """Return the value of an environment variable, or its `valueFrom`."""
    return entry["valueFrom"] if "valueFrom" in entry else entry.get("value", "")


def _volume_source(volume: Object) -> Object:
    return {key: value for key, value in volume.items() if key != "name"}
