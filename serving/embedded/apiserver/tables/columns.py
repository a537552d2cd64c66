"""Columns of built-in kinds, as in k8s.io/kubernetes/pkg/printers/internalversion/printers.go."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from serving.embedded.apiserver.tables import node_columns, pod_columns
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.formats import ages, label_selector
from serving.resources.kinds import Kind

NONE = "<none>"
MAX_LISTED = 3
"""Endpoints or ports listed before `+ N more...`."""


@dataclass(frozen=True)
class TableColumn:
    """One column of a Table of meta.k8s.io/v1."""

    name: str
    cell: Callable[[Object, datetime], Any]
    """Returns the cell of an object; ages are as of the time."""
    type: str = "string"
    priority: int = 0
    """0, or 1 for a column that only `kubectl get -o wide` shows."""


def _age(obj: Object, now: datetime) -> str:
    return ages.since(obj["metadata"].get("creationTimestamp"), now)


def _field(*path: str, missing: Any = "") -> Callable[[Object, datetime], Any]:
    """Return the cell function of the field at `path`, or of `missing` where the object lacks it."""

    def cell(obj: Object, _now: datetime) -> Any:
        value: Any = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return missing if value is None else value

    return cell


def _container_fields(field: str) -> Callable[[Object, datetime], str]:
    """Return the cell function of a field of each container of the Pod template."""

    def cell(obj: Object, _now: datetime) -> str:
        containers = obj["spec"]["template"]["spec"].get("containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def _selector(obj: Object, _now: datetime) -> str:
    return label_selector.text(obj["spec"].get("selector") or {}) or NONE


def _deployment_ready(obj: Object, _now: datetime) -> str:
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 1)}"


def _job_status(obj: Object, _now: datetime) -> str:
    status = obj.get("status") or {}
    true_conditions = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    for type_ in ("Complete", "Failed"):
        if type_ in true_conditions:
            return type_
    if is_deleting(obj):
        return "Terminating"
    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if type_ in true_conditions:
            return type_
    return "Running"


def _job_completions(obj: Object, _now: datetime) -> str:
    spec, succeeded = obj["spec"], (obj.get("status") or {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 1)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(obj: Object, now: datetime) -> str:
    status = obj.get("status") or {}
    if "startTime" not in status:
        return ""
    if "completionTime" in status:
        return ages.between(status["startTime"], status["completionTime"])
    return ages.since(status["startTime"], now)


def _service_ports(obj: Object, _now: datetime) -> str:
    ports = obj["spec"].get("ports") or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _service_selector(obj: Object, _now: datetime) -> str:
    return (
        ",".join(f"{key}={value}" for key, value in sorted((obj["spec"].get("selector") or {}).items()))
        or NONE
    )


def _config_map_data(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _slice_ports(obj: Object, _now: datetime) -> str:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or ()]
    return _join_first(ports) if ports else "<unset>"


def _slice_endpoints(obj: Object, _now: datetime) -> str:
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return _join_first(addresses) if addresses else "<unset>"


def _join_first(texts: list[str]) -> str:
    """Return the first `MAX_LISTED` texts, and the number of the others."""
    more = len(texts) - MAX_LISTED
    return ",".join(texts[:MAX_LISTED]) + (f" + {more} more..." if more > 0 else "")


def _event_seen(obj: Object, now: datetime) -> str:
    series = obj.get("series") or {}
    moment = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return ages.since(moment or obj.get("firstTimestamp"), now)


def _event_object(obj: Object, _now: datetime) -> str:
    involved = obj.get("involvedObject") or {}
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved.get('name', '')}" if involved.get("name") else kind


def _event_source(obj: Object, _now: datetime) -> str:
    source = obj.get("source") or {}
    parts = (source.get("component") or obj.get("reportingComponent"), source.get("host"))
    return ", ".join(str(part) for part in parts if part)


def _event_first(obj: Object, now: datetime) -> str:
    return ages.since(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _event_message(obj: Object, _now: datetime) -> str:
    return str(obj.get("message", "")).strip()


_NAME = TableColumn("Name", _field("metadata", "name"))
_AGE = TableColumn("Age", _age)
_NODE_INFO = ("status", "nodeInfo")

PLAIN = (_NAME, _AGE)
"""Columns of a kind without columns of its own."""

BUILTIN: dict[Kind, tuple[TableColumn, ...]] = {
    kinds.POD: (
        _NAME,
        TableColumn("Ready", pod_columns.ready),
        TableColumn("Status", pod_columns.reason),
        TableColumn("Restarts", pod_columns.restarts),
        _AGE,
        TableColumn("IP", _field("status", "podIP", missing=NONE), priority=1),
        TableColumn("Node", _field("spec", "nodeName", missing=NONE), priority=1),
        TableColumn("Nominated Node", _field("status", "nominatedNodeName", missing=NONE), priority=1),
        TableColumn("Readiness Gates", lambda _obj, _now: NONE, priority=1),
    ),
    kinds.DEPLOYMENT: (
        _NAME,
        TableColumn("Ready", _deployment_ready),
        TableColumn("Up-to-date", _field("status", "updatedReplicas", missing=0), "integer"),
        TableColumn("Available", _field("status", "availableReplicas", missing=0), "integer"),
        _AGE,
        TableColumn("Containers", _container_fields("name"), priority=1),
        TableColumn("Images", _container_fields("image"), priority=1),
        TableColumn("Selector", _selector, priority=1),
    ),
    kinds.JOB: (
        _NAME,
        TableColumn("Status", _job_status),
        TableColumn("Completions", _job_completions),
        TableColumn("Duration", _job_duration),
        _AGE,
        TableColumn("Containers", _container_fields("name"), priority=1),
        TableColumn("Images", _container_fields("image"), priority=1),
        TableColumn("Selector", _selector, priority=1),
    ),
    kinds.SERVICE: (
        _NAME,
        TableColumn("Type", _field("spec", "type")),
        TableColumn("Cluster-IP", _field("spec", "clusterIP", missing=NONE)),
        TableColumn("External-IP", lambda _obj, _now: NONE),
        TableColumn("Port(s)", _service_ports),
        _AGE,
        TableColumn("Selector", _service_selector, priority=1),
    ),
    kinds.NODE: (
        _NAME,
        TableColumn("Status", node_columns.status),
        TableColumn("Roles", lambda _obj, _now: NONE),
        _AGE,
        TableColumn("Version", _field(*_NODE_INFO, "kubeletVersion")),
        TableColumn("Internal-IP", node_columns.internal_ip, priority=1),
        TableColumn("External-IP", lambda _obj, _now: NONE, priority=1),
        TableColumn("OS-Image", _field(*_NODE_INFO, "osImage"), priority=1),
        TableColumn("Kernel-Version", _field(*_NODE_INFO, "kernelVersion"), priority=1),
        TableColumn("Container-Runtime", _field(*_NODE_INFO, "containerRuntimeVersion"), priority=1),
    ),
    kinds.NAMESPACE: (_NAME, TableColumn("Status", _field("status", "phase")), _AGE),
    kinds.CONFIG_MAP: (_NAME, TableColumn("Data", _config_map_data, "integer"), _AGE),
    kinds.SECRET: (
        _NAME,
        TableColumn("Type", _field("type")),
        TableColumn("Data", lambda obj, _now: len(obj.get("data") or {}), "integer"),
        _AGE,
    ),
    kinds.EVENT_V1: (
        TableColumn("Last Seen", _event_seen),
        TableColumn("Type", _field("type")),
        TableColumn("Reason", _field("reason")),
        TableColumn("Object", _event_object),
        TableColumn("Subobject", _field("involvedObject", "fieldPath"), priority=1),
        TableColumn("Source", _event_source, priority=1),
        TableColumn("Message", _event_message),
        TableColumn("First Seen", _event_first, priority=1),
        TableColumn("Count", _field("count", missing=1), "integer", 1),
        TableColumn("Name", _field("metadata", "name"), priority=1),
    ),
    kinds.ENDPOINT_SLICE: (
        _NAME,
        TableColumn("AddressType", _field("addressType")),
        TableColumn("Ports", _slice_ports),
        TableColumn("Endpoints", _slice_endpoints),
        _AGE,
    ),
    kinds.LEASE: (_NAME, TableColumn("Holder", _field("spec", "holderIdentity")), _AGE),
}
