"""The columns of built-in kinds, as kubectl prints them: k8s.io/kubernetes/pkg/printers/internalversion/printers.go."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from serving.embedded.apiserver.tables import pod_columns
from serving.embedded.apiserver.writes import scale
from serving.objects import Object
from serving.resources import ages, kinds
from serving.resources.kinds import Kind

NONE = "<none>"
SHOWN = 3
"""Endpoints and ports listed before `+ N more...`."""


@dataclass(frozen=True)
class Column:
    """One column; `priority` 1 is shown by `-o wide` only."""

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    priority: int = 0


def _age(obj: Object, now: datetime) -> str:
    return ages.since(obj["metadata"].get("creationTimestamp"), now)


def _at(*path: str, missing: Any = "") -> Callable[[Object, datetime], Any]:
    def cell(obj: Object, _now: datetime) -> Any:
        value: Any = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return missing if value is None else value

    return cell


def _template(field: str) -> Callable[[Object, datetime], str]:
    def cell(obj: Object, _now: datetime) -> str:
        containers = obj["spec"]["template"]["spec"].get("containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def _selector(obj: Object, _now: datetime) -> str:
    return scale.selector_text(obj["spec"].get("selector") or {}) or NONE


def _deployment_ready(obj: Object, _now: datetime) -> str:
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 1)}"


def _job_status(obj: Object, _now: datetime) -> str:
    status = obj.get("status") or {}
    true = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    for type_ in ("Complete", "Failed"):
        if type_ in true:
            return type_
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if type_ in true:
            return type_
    return "Running"


def _job_completions(obj: Object, _now: datetime) -> str:
    spec, done = obj["spec"], (obj.get("status") or {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    many = spec.get("parallelism", 1)
    return f"{done}/1 of {many}" if many > 1 else f"{done}/1"


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
    return _some(ports) if ports else "<unset>"


def _slice_endpoints(obj: Object, _now: datetime) -> str:
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return _some(addresses) if addresses else "<unset>"


def _some(texts: list[str]) -> str:
    more = len(texts) - SHOWN
    return ",".join(texts[:SHOWN]) + (f" + {more} more..." if more > 0 else "")


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


_NAME = Column("Name", _at("metadata", "name"))
_AGE = Column("Age", _age)

BUILTIN: dict[Kind, tuple[Column, ...]] = {
    kinds.POD: (
        _NAME, Column("Ready", pod_columns.ready), Column("Status", pod_columns.reason),
        Column("Restarts", pod_columns.restarts), _AGE,
        Column("IP", _at("status", "podIP", missing=NONE), priority=1),
        Column("Node", _at("spec", "nodeName", missing=NONE), priority=1),
        Column("Nominated Node", _at("status", "nominatedNodeName", missing=NONE), priority=1),
        Column("Readiness Gates", lambda _obj, _now: NONE, priority=1),
    ),
    kinds.DEPLOYMENT: (
        _NAME, Column("Ready", _deployment_ready),
        Column("Up-to-date", _at("status", "updatedReplicas", missing=0), "integer"),
        Column("Available", _at("status", "availableReplicas", missing=0), "integer"), _AGE,
        Column("Containers", _template("name"), priority=1), Column("Images", _template("image"), priority=1),
        Column("Selector", _selector, priority=1),
    ),
    kinds.JOB: (
        _NAME, Column("Status", _job_status), Column("Completions", _job_completions),
        Column("Duration", _job_duration), _AGE,
        Column("Containers", _template("name"), priority=1), Column("Images", _template("image"), priority=1),
        Column("Selector", _selector, priority=1),
    ),
    kinds.SERVICE: (
        _NAME, Column("Type", _at("spec", "type")), Column("Cluster-IP", _at("spec", "clusterIP", missing=NONE)),
        Column("External-IP", lambda _obj, _now: NONE), Column("Port(s)", _service_ports), _AGE,
        Column("Selector", _service_selector, priority=1),
    ),
    kinds.NAMESPACE: (_NAME, Column("Status", _at("status", "phase")), _AGE),
    kinds.CONFIG_MAP: (_NAME, Column("Data", _config_map_data, "integer"), _AGE),
    kinds.SECRET: (
        _NAME, Column("Type", _at("type")), Column("Data", lambda obj, _now: len(obj.get("data") or {}), "integer"),
        _AGE,
    ),
    kinds.EVENT_V1: (
        Column("Last Seen", _event_seen), Column("Type", _at("type")), Column("Reason", _at("reason")),
        Column("Object", _event_object), Column("Subobject", _at("involvedObject", "fieldPath"), priority=1),
        Column("Source", _event_source, priority=1), Column("Message", _event_message),
        Column("First Seen", _event_first, priority=1), Column("Count", _at("count", missing=1), "integer", 1),
        Column("Name", _at("metadata", "name"), priority=1),
    ),
    kinds.ENDPOINT_SLICE: (
        _NAME, Column("AddressType", _at("addressType")), Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints), _AGE,
    ),
    kinds.LEASE: (_NAME, Column("Holder", _at("spec", "holderIdentity")), _AGE),
}  # fmt: skip
