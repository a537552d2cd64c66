"""Pruning: what a schema does not describe is not stored."""

from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema


def prune(value: Any, schema: Schema) -> Any:
    """Return a copy without nulls and unknown fields, and with the numbers of quantities as strings."""
    if isinstance(value, dict):
        described = schema.get("type", "object") == "object" and not schema.get("x-kubernetes-int-or-string")
        members = (
            (key, item, schemas.child(schema, key) if described else schemas.ANY)
            for key, item in value.items()
        )
        return {
            key: prune(item, below) for key, item, below in members if item is not None and below is not None
        }
    if isinstance(value, list):
        below = schemas.items(schema)
        return [prune(item, below) for item in value if item is not None]
    if schema.get("format") == "quantity" and type(value) in (int, float):
        return str(value)
    return value
