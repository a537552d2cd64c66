"""The sections of `slipway describe`, as text. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson
import yaml

from serving.cli.objects import container_states
from serving.cli.output import tables
from serving.objects import Object, is_deleting
from serving.resources import names
from serving.resources.conditions import find
from serving.resources.formats import ages
from serving.resources.kinds import Kind

_METADATA = ("name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp", "finalizers")
_TIMES = ("creationTimestamp", "deletionTimestamp")
NONE = "<none>"


def head(kind: Kind, obj: Object, now: datetime) -> str:
    """Return kind, metadata and URL, one per line; times with their age."""
    meta = obj["metadata"]
    fields = {"Kind": f"{kind.kind} ({kind.api_version})"}
    for key in _METADATA:
        if key in meta:
            ago = f" ({ages.since(meta[key], now)} ago)" if key in _TIMES else ""
            value = ", ".join(meta[key]) if isinstance(meta[key], list) else meta[key]
            fields[key[0].upper() + key[1:]] = f"{value}{ago}"
    for key in ("labels", "annotations"):
        for name, value in (meta.get(key) or {}).items():
            fields[f"{key[:-1].capitalize()} {name}"] = str(value)
    for owner in meta.get("ownerReferences") or []:
        if owner.get("controller"):
            fields["Controlled By"] = f"{owner['kind']}/{owner['name']}"
    if url := (obj.get("status") or {}).get("url"):
        fields["URL"] = url
    width = max(len(key) for key in fields) + 2
    return "\n".join(tables.printable(f"{key + ':':<{width}}{value}") for key, value in fields.items())


def titled(title: str, text: str) -> str:
    """Return a section: its title, and its lines indented; control characters are escaped."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return "\n".join([f"{title}:", *(f"  {tables.printable(line)}" for line in lines)])


def document(value: Any) -> str:
    """Return a part of an object as YAML."""
    return yaml.safe_dump(value, sort_keys=False).rstrip() if value else NONE


def status(value: Object) -> str:
    """Return a status as YAML, without its conditions and its empty fields."""
    return document(_without_empty({key: item for key, item in value.items() if key != "conditions"}))


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in fields.items() if item not in ("", None) and item not in ({}, [])}


def conditions(conditions: Iterable[Object], now: datetime) -> str:
    """Return the table of conditions; the age is the time since the status changed."""
    rows = [
        [
            c["type"],
            c["status"],
            c.get("reason"),
            ages.since(c.get("lastTransitionTime"), now),
            c.get("message", ""),
        ]
        for c in conditions
    ]
    return tables.text(["Type", "Status", "Reason", "Age", "Message"], rows)


def without_start(conditions: Iterable[Object]) -> list[Object]:
    """Return the conditions except `Started`, which has a section of its own."""
    return [c for c in conditions if c["type"] != names.STARTED_CONDITION]


def start(pod: Object) -> str:
    """Return the phases of the Pod's start: milliseconds and shares; empty where they are unknown."""
    condition = find((pod.get("status") or {}).get("conditions"), names.STARTED_CONDITION)
    try:
        phases = orjson.loads((condition or {}).get("message", ""))
        total = 1000 * (phases.pop("ready") - phases.pop("seen"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return ""
    assert condition is not None
    rows = [
        [phase, f"{spent:.1f}", f"{spent / total:.0%}" if total else ""] for phase, spent in phases.items()
    ]
    rows.append([f"ready ({condition.get('reason', '').lower()})", f"{total:.1f}", ""])
    return tables.text(["Phase", "Milliseconds", "Share"], rows)


def predictors(inference: Object) -> str:
    """Return the table of arms."""
    headers, rows = tables.overview([inference], namespaced=False)
    shown = [headers.index(name) for name in ("Arm", "Version", "Weight", "Traffic", "Replicas", "Reason")]
    return tables.text([headers[i] for i in shown], [[row[i] for i in shown] for row in rows])


def replicas(pods: Iterable[Object], now: datetime) -> str:
    """Return the Pods of an Inference, by arm and name."""
    rows = sorted((_replica(pod, now) for pod in pods), key=lambda row: (str(row[1]), str(row[0])))
    headers = ["Name", "Arm", "Status", "Ready", "Restarts", "Age", "IP"]
    return tables.text(headers, rows) if rows else NONE


def pods(pods: Iterable[Object], now: datetime) -> str:
    """Return the Pods of a Job, oldest first, with the reasons of containers that cannot run or failed."""
    rows = []
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        name, _, status, _, restarts, age, _ = _replica(pod, now)
        rows.append([name, status, restarts, age, "; ".join(container_states.problems(pod))])
    return tables.text(["Name", "Status", "Restarts", "Age", "Message"], rows) if rows else NONE


def wakes(autoscalers: Iterable[Object], now: datetime) -> str:
    """Return the phases of each arm's last start from zero, in milliseconds; empty where there was none."""
    last = {
        str((scaler["metadata"].get("labels") or {}).get(names.PREDICTOR_LABEL)): demand["lastWake"]
        for scaler in autoscalers
        for demand in (scaler.get("status") or {}).get("demand") or []
        if demand.get("lastWake")
    }
    phases = list(dict.fromkeys(phase["name"] for wake in last.values() for phase in wake["phases"]))
    rows = []
    for arm, wake in sorted(last.items()):
        milliseconds = {phase["name"]: round(phase["milliseconds"]) for phase in wake["phases"]}
        rows.append(
            [
                arm,
                ages.since(wake["acceptedAt"], now),
                round(wake["total"]),
                *(milliseconds.get(name) for name in phases),
            ]
        )
    return tables.text(["Arm", "Age", "Total", *(name.capitalize() for name in phases)], rows) if rows else ""


def _replica(pod: Object, now: datetime) -> list[object]:
    meta, status = pod["metadata"], pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    waiting = [(c.get("state") or {}).get("waiting") or {} for c in containers]
    reason = next((w["reason"] for w in waiting if w.get("reason")), status.get("phase"))
    return [
        meta["name"],
        (meta.get("labels") or {}).get(names.PREDICTOR_LABEL),
        "Terminating" if is_deleting(pod) else reason,
        f"{sum(bool(c.get('ready')) for c in containers)}/{len(pod['spec']['containers'])}",
        sum(int(c.get("restartCount", 0)) for c in containers),
        ages.since(meta.get("creationTimestamp"), now),
        status.get("podIP"),
    ]


def events(events: Iterable[Object], now: datetime) -> str:
    """Return the table of Events, oldest first, with kubectl's columns."""
    rows = [
        [
            e.get("type"),
            e.get("reason"),
            _when(e, now),
            (e.get("source") or {}).get("component"),
            e.get("message"),
        ]
        for e in sorted(events, key=_last)
    ]
    return tables.text(["Type", "Reason", "Age", "From", "Message"], rows) if rows else NONE


def _last(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")


def _when(event: Object, now: datetime) -> str:
    """Return the age of an Event, `5s`, or of a repeated one `5s (x3 over 2m)`."""
    last, count = ages.since(_last(event), now), int(event.get("count") or 1)
    if count < 2:
        return last
    return f"{last} (x{count} over {ages.since(event.get('firstTimestamp'), now)})"
