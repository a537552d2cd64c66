"""The sections of `slipway describe`, as text. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import yaml

from serving.cli.objects import container_states
from serving.cli.output import tables
from serving.objects import Object, is_deleting
from serving.resources import names
from serving.resources.formats import ages
from serving.resources.kinds import Kind
from serving.resources.kubernetes.conditions import find

_METADATA = ("name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp", "finalizers")
_TIMES = ("creationTimestamp", "deletionTimestamp")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The manifest of the last `kubectl apply`, with the data of a Secret: kubectl does not show it either."""
NONE = "<none>"
"""Text of an empty section."""


class _ReplicaRow(NamedTuple):
    """The cells of a Pod, by the columns of `replicas`."""

    name: str
    arm: str | None
    status: str | None
    ready: str
    restarts: int
    age: str
    ip: str | None


def head(kind: Kind, obj: Object, now: datetime) -> str:
    """Return kind, metadata and URL, one per line; times with their age."""
    meta = obj["metadata"]
    fields = {"Kind": f"{kind.kind} ({kind.api_version})"}
    for key in _METADATA:
        if key in meta:
            relative = f" ({_relative(meta[key], now)})" if key in _TIMES else ""
            value = ", ".join(meta[key]) if isinstance(meta[key], list) else meta[key]
            fields[key[0].upper() + key[1:]] = f"{value}{relative}"
    for key in ("labels", "annotations"):
        for name, value in (meta.get(key) or {}).items():
            if name == _APPLIED:
                continue
            fields[f"{key[:-1].capitalize()} {name}"] = str(value)
    for owner in meta.get("ownerReferences") or []:
        if owner.get("controller"):
            fields["Controlled By"] = f"{owner['kind']}/{owner['name']}"
    if url := (obj.get("status") or {}).get("url"):
        fields["URL"] = url
    width = max(len(key) for key in fields) + 2
    return "\n".join(tables.printable(f"{key + ':':<{width}}{value}") for key, value in fields.items())


def _relative(moment: str, now: datetime) -> str:
    """Return `5m ago`, or `in 29s` for a time in the future, such as the end of a grace period."""
    age_seconds = (now - datetime.fromisoformat(moment)).total_seconds()
    return f"in {ages.human(-age_seconds)}" if age_seconds <= -1 else f"{ages.human(age_seconds)} ago"


def titled(title: str, text: str) -> str:
    """Return a section: its title, and its lines indented; control characters are escaped."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return "\n".join([f"{title}:", *(f"  {tables.printable(line)}" for line in lines)])


def document(value: Any) -> str:
    """Return a part of an object as YAML."""
    return yaml.safe_dump(value, sort_keys=False).rstrip() if value else NONE


def status(value: Object) -> str:
    """Return a status as YAML, without its conditions and empty fields; items of lists keep empty fields."""
    return document(_without_empty({key: item for key, item in value.items() if key != "conditions"}))


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in fields.items() if item not in ("", None) and item not in ({}, [])}


def conditions(items: Iterable[Object], now: datetime) -> str:
    """Return the table of conditions; the age is the time since the status changed."""
    rows = [
        [
            item["type"],
            item["status"],
            item.get("reason"),
            ages.since(item.get("lastTransitionTime"), now),
            item.get("message", ""),
        ]
        for item in items
    ]
    return tables.text(["Type", "Status", "Reason", "Age", "Message"], rows)


def without_start(items: Iterable[Object]) -> list[Object]:
    """Return the conditions except `Started`, which has a section of its own."""
    return [item for item in items if item["type"] != names.STARTED_CONDITION]


def start(pod: Object) -> str:
    """Return the phases of the Pod's start: milliseconds and shares; empty where they are unknown.

    The condition's message is JSON: `seen` and `ready` in Unix seconds, and the milliseconds of each phase.
    """
    condition = find((pod.get("status") or {}).get("conditions"), names.STARTED_CONDITION)
    if condition is None:
        return ""
    try:
        phases = orjson.loads(condition.get("message", ""))
        total_ms = 1000 * (phases.pop("ready") - phases.pop("seen"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return ""
    rows = [
        [phase, f"{phase_ms:.1f}", f"{phase_ms / total_ms:.0%}" if total_ms else ""]
        for phase, phase_ms in phases.items()
    ]
    rows.append([f"ready ({condition.get('reason', '').lower()})", f"{total_ms:.1f}", ""])
    return tables.text(["Phase", "Milliseconds", "Share"], rows)


def predictors(inference: Object) -> str:
    """Return the table of arms: some columns of the overview."""
    headers, rows = tables.overview([inference], namespaced=False)
    shown = ("Arm", "Version", "Weight", "Traffic", "Replicas", "Reason")
    indexes = [headers.index(name) for name in shown]
    return tables.text(shown, [[row[index] for index in indexes] for row in rows])


def replicas(pods: Iterable[Object], now: datetime) -> str:
    """Return the table of an Inference's Pods, ordered by arm and name."""
    rows = sorted((_replica(pod, now) for pod in pods), key=lambda row: (str(row.arm), row.name))
    headers = ["Name", "Arm", "Status", "Ready", "Restarts", "Age", "IP"]
    return tables.text(headers, rows) if rows else NONE


def pods(pods: Iterable[Object], now: datetime) -> str:
    """Return the table of a Job's Pods, oldest first; the message is why containers are blocked or failed."""
    rows = []
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        row = _replica(pod, now)
        message = "; ".join(container_states.problems(pod))
        rows.append([row.name, row.status, row.restarts, row.age, message])
    return tables.text(["Name", "Status", "Restarts", "Age", "Message"], rows) if rows else NONE


def wakes(autoscalers: Iterable[Object], now: datetime) -> str:
    """Return the phases of each arm's last start from zero, in milliseconds; empty where there was none."""
    last_wakes: dict[str, Object] = {}
    for autoscaler in autoscalers:
        arm = str((autoscaler["metadata"].get("labels") or {}).get(names.PREDICTOR_LABEL))
        for demand in (autoscaler.get("status") or {}).get("demand") or []:
            wake = demand.get("lastWake")  # each activator reports the last start that it caused
            if wake and (arm not in last_wakes or wake["acceptedAt"] > last_wakes[arm]["acceptedAt"]):
                last_wakes[arm] = wake
    if not last_wakes:
        return ""
    phases = list(dict.fromkeys(phase["name"] for wake in last_wakes.values() for phase in wake["phases"]))
    rows: list[list[object]] = []
    for arm, wake in sorted(last_wakes.items()):
        phase_ms = {phase["name"]: round(phase["milliseconds"]) for phase in wake["phases"]}
        age = ages.since(wake["acceptedAt"], now)
        rows.append([arm, age, round(wake["total"]), *(phase_ms.get(name) for name in phases)])
    return tables.text(["Arm", "Age", "Total", *(name.capitalize() for name in phases)], rows)


def _replica(pod: Object, now: datetime) -> _ReplicaRow:
    """Return the row of a Pod; the status is `Terminating`, why a container waits, or the phase."""
    meta, status = pod["metadata"], pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    waiting = [(c.get("state") or {}).get("waiting") or {} for c in containers]
    reason = next((w["reason"] for w in waiting if w.get("reason")), status.get("phase"))
    ready = sum(bool(container.get("ready")) for container in containers)
    return _ReplicaRow(
        name=meta["name"],
        arm=(meta.get("labels") or {}).get(names.PREDICTOR_LABEL),
        status="Terminating" if is_deleting(pod) else reason,
        ready=f"{ready}/{len(pod['spec']['containers'])}",
        restarts=sum(int(container.get("restartCount", 0)) for container in containers),
        age=ages.since(meta.get("creationTimestamp"), now),
        ip=status.get("podIP"),
    )


def events(items: Iterable[Object], now: datetime) -> str:
    """Return the table of Events, oldest first, with kubectl's columns."""
    rows = [
        [
            event.get("type"),
            event.get("reason"),
            _when(event, now),
            (event.get("source") or {}).get("component") or event.get("reportingComponent"),
            event.get("message"),
        ]
        for event in sorted(items, key=_last_time)
    ]
    return tables.text(["Type", "Reason", "Age", "From", "Message"], rows) if rows else NONE


def _last_time(event: Object) -> str:
    """Return when an Event occurred last, RFC 3339; empty where it has no time.

    Events of events.k8s.io have `eventTime`, and their repeats in `series`.
    """
    last_time = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(last_time or _first_time(event))


def _first_time(event: Object) -> str:
    return str(event.get("eventTime") or event.get("firstTimestamp") or "")


def _when(event: Object, now: datetime) -> str:
    """Return the age of an Event, `5s`, or of a repeated one `5s (x3 over 2m)`."""
    last = ages.since(_last_time(event), now)
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    return last if count < 2 else f"{last} (x{count} over {ages.since(_first_time(event), now)})"
