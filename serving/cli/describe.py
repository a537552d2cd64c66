"""`slipway describe`: one object with what belongs to it: conditions, lineage, Events."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from serving import errors
from serving.cli import lineage, tables
from serving.cli.session import with_kube
from serving.cli.target import Target, named
from serving.resources import kinds, names
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

SHOWN_METADATA = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "finalizers",
)


def describe(what: list[str], meant: Target) -> None:
    """Print each object with its conditions, Events and lineage."""

    async def work(kube: "Kube") -> None:
        for kind, name in named(what):
            if name is None:
                raise errors.UserError(f"name the {kind.kind}: slipway describe {kind.singular} NAME")
            obj = await kube.get(kind, meant.namespace if kind.namespaced else None, name)
            print("\n\n".join([section async for section in _sections(kube, kind, obj)]))

    with_kube(meant.kubeconfig, work)


async def _sections(kube: "Kube", kind: Kind, obj: Mapping[str, Any]) -> Any:
    meta, status = obj["metadata"], obj.get("status") or {}
    yield _head(kind, obj)
    if kind is kinds.INFERENCE:
        yield "Predictors:\n" + _indented(tables.text(*tables.overview([obj], namespaced=False)))
    else:
        yield "Spec:\n" + _indented(_yaml(obj.get("spec")))
        yield "Status:\n" + _indented(_yaml({k: v for k, v in status.items() if k != "conditions"}))
    if conditions := status.get("conditions"):
        rows = [
            [c["type"], c["status"], c.get("reason"), c.get("lastTransitionTime"), c.get("message", "")]
            for c in conditions
        ]
        yield "Conditions:\n" + _indented(tables.text(["Type", "Status", "Reason", "Since", "Message"], rows))
    if kind is kinds.INFERENCE:
        pods = await kube.list(kinds.POD, meta["namespace"], labels=f"{names.INFERENCE_LABEL}={meta['name']}")
        yield "Replicas:\n" + _indented(
            tables.text(["Name", "Arm", "Phase", "Ready", "IP"], [_pod(p) for p in pods.items])
        )
        for predictor in obj["spec"]["predictors"]:
            steps = await lineage.of_version(kube, meta["namespace"], predictor["modelVersion"])
            yield f"Lineage of {predictor['name']}:\n" + _indented(tables.text(lineage.Step._fields, steps))
    elif kind is kinds.POD:
        yield "Lineage:\n" + _indented(tables.text(lineage.Step._fields, await lineage.of_pod(kube, obj)))
    elif kind is kinds.MODEL_VERSION:
        steps = await lineage.of_version(kube, meta["namespace"], meta["name"])
        yield "Lineage:\n" + _indented(tables.text(lineage.Step._fields, steps))
    yield "Events:\n" + _indented(await _events(kube, meta))


def _head(kind: Kind, obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    fields = {"Kind": f"{kind.kind} ({kind.api_version})"}
    fields |= {key[0].upper() + key[1:]: str(meta[key]) for key in SHOWN_METADATA if key in meta}
    for key in ("labels", "annotations"):
        for name, value in (meta.get(key) or {}).items():
            fields[f"{key[:-1].capitalize()} {name}"] = str(value)
    if url := (obj.get("status") or {}).get("url"):
        fields["URL"] = url
    width = max(len(key) for key in fields) + 2
    return "\n".join(f"{key + ':':<{width}}{value}" for key, value in fields.items())


def _pod(pod: Mapping[str, Any]) -> list[object]:
    status = pod.get("status") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    labels = pod["metadata"].get("labels") or {}
    return [
        pod["metadata"]["name"],
        labels.get(names.PREDICTOR_LABEL),
        status.get("phase"),
        ready,
        status.get("podIP"),
    ]


async def _events(kube: "Kube", meta: Mapping[str, Any]) -> str:
    """Return the Events of exactly this object (by uid), oldest first."""
    found = await kube.list(
        kinds.EVENT_V1, meta.get("namespace") or "default", fields=f"involvedObject.uid={meta['uid']}"
    )
    rows = [
        [e.get("type"), e.get("reason"), e.get("lastTimestamp"), e.get("count", 1),
         (e.get("source") or {}).get("component"), e.get("message")]
        for e in sorted(found.items, key=lambda e: str(e.get("lastTimestamp")))
    ]  # fmt: skip
    return tables.text(["Type", "Reason", "Last", "Count", "From", "Message"], rows) if rows else "<none>"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False).rstrip() if value else "<none>"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
