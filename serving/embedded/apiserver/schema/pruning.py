"""Pruning: the server does not store fields that a schema does not describe, nor nulls that it forbids."""

from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema


def prune(value: Any, schema: Schema) -> Any:
    """Return a copy without unknown fields, and with the numbers of quantities as strings.

    A null is kept only where the schema has `nullable`.
    """
    if isinstance(value, dict):
        # A map in place of a scalar keeps its members, so that validation reports its type.
        is_map = schema.get("type", "object") == "object" and not schema.get("x-kubernetes-int-or-string")
        pruned = {}
        for key, member in value.items():
            child = schemas.child(schema, key) if is_map else schemas.ANY
            # Without a child the schema does not know the field.
            if child is not None and (member is not None or child.get("nullable")):
                pruned[key] = prune(member, child)
        return pruned
    if isinstance(value, list):
        child = schemas.items(schema)
        return [prune(item, child) for item in value if item is not None or child.get("nullable")]
    if schema.get("format") == "quantity" and type(value) in (int, float):
        return str(value)
    return value
