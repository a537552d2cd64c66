"""The scale subresource: autoscaling/v1 Scale as a view of an object, and writes through that view."""

from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema
from serving.resources.formats import label_selector
from serving.resources.kinds import Kind

SCHEMA: Schema = {
    "type": "object",
    "description": "Scale represents a scaling request for a resource.",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0}}},
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
        },
    },
}
_COPIED_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_CHECKED_METADATA = ("resourceVersion", "uid", "name", "namespace")
"""Fields of a Scale that a write checks against those of the object."""


def to_scale(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the Scale of an object of a kind with this subresource."""
    fields = kind.scale
    assert fields is not None
    meta, status = obj["metadata"], obj.get("status") or {}
    if fields.has_selector_text:
        selector = status.get("selector", "")
    else:
        selector = label_selector.text((obj.get("spec") or {}).get("selector") or {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _COPIED_METADATA if key in meta},
        "spec": {"replicas": (obj.get("spec") or {}).get("replicas", 0)},
        "status": {
            "replicas": status.get(fields.current, 0),
            "selector": selector,
        },
    }


def from_scale(old: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the replicas of the Scale.

    Its `checked_metadata` is copied too, for the checks of an update. Other fields of the Scale are ignored.
    """
    obj: dict[str, Any] = schemas.clone(old)
    obj["spec"]["replicas"] = (scale.get("spec") or {}).get("replicas", 0)
    obj["metadata"] |= checked_metadata(scale)
    return obj


def checked_metadata(scale: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a Scale that a write checks: resourceVersion, uid, name and namespace."""
    meta = scale.get("metadata") or {}
    return {field: meta[field] for field in _CHECKED_METADATA if meta.get(field)}
