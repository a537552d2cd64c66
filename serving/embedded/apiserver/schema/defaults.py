"""Defaults that a schema states."""

from collections.abc import Container
from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema


def fill(value: Any, schema: Schema, *, unchanged: Container[str] = ()) -> Any:
    """Return the value with the schema's defaults filled in: itself where none is missing.

    Members of a map that are `unchanged` have their defaults already.
    """
    plan = _plan(schema)
    if isinstance(value, dict):
        new = {key: schemas.clone(filled) for key, filled in plan.missing if key not in value}
        deeper = [(key, below) for key, below in plan.members.items() if key in value]
        if plan.others is not None:
            deeper += [(key, plan.others) for key in value if key not in plan.properties]
        for key, below in deeper:
            filled = value[key] if key in unchanged else fill(value[key], below)
            if filled is not value[key]:
                new[key] = filled
        return {**value, **new} if new else value
    if isinstance(value, list) and plan.items is not None:
        items = [fill(item, plan.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


class _Plan:
    """Where a schema has defaults."""

    def __init__(self, schema: Schema) -> None:
        self.properties = properties = schema.get("properties") or {}
        self.missing = [
            (key, fill(below["default"], below)) for key, below in properties.items() if "default" in below
        ]
        self.members = {key: below for key, below in properties.items() if _has_defaults(below)}
        self.others = _if_defaults(schema.get("additionalProperties"))
        self.items = _if_defaults(schema.get("items"))


_plan = schemas.once(_Plan)


def _has_defaults(schema: Schema) -> bool:
    plan = _plan(schema)
    return bool(plan.missing or plan.members or plan.others is not None or plan.items is not None)


def _if_defaults(schema: Any) -> Schema | None:
    return schema if isinstance(schema, dict) and _has_defaults(schema) else None
