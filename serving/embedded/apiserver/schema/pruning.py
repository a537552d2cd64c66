"""Reading a body by its schema: unknown fields, nulls, quantities and defaults. Validation is elsewhere."""

from collections.abc import Container
from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema


def join(path: str, key: str) -> str:
    """Return the JSON path of a map's key; keys that are no identifiers stand in brackets."""
    if not key.replace("-", "").replace("_", "").isalnum():
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def read(value: Any, schema: Schema, unknown: list[str], path: str = "") -> Any:
    """Return a copy without nulls and unknown fields, numbers in quantities made strings.

    Args:
        value: what was sent.
        schema: what is known.
        unknown: gets the paths of dropped unknown fields.
        path: where `value` stands.
    """
    if isinstance(value, dict):
        return _read_map(value, schema, unknown, path)
    if isinstance(value, list):
        below = schemas.items(schema)
        return [
            read(item, below, unknown, f"{path}[{index}]")
            for index, item in enumerate(value)
            if item is not None
        ]
    if schema.get("format") == "quantity" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _read_map(value: dict[str, Any], schema: Schema, unknown: list[str], path: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    described = schema.get("type", "object") == "object"
    for key, item in value.items():
        below = schemas.child(schema, key) if described else schemas.ANY
        where = join(path, key)
        if below is None:
            unknown.append(where)
        elif item is not None:
            out[key] = read(item, below, unknown, where)
    return out


def default(value: Any, schema: Schema, *, known: Container[str] = ()) -> Any:
    """Return the value with the schema's defaults put in: itself, unchanged, where none was missing.

    Members of a map that are `known` have theirs already.
    """
    plan = _plan(schema)
    if isinstance(value, dict):
        found = {key: schemas.clone(filled) for key, filled in plan.missing if key not in value}
        deeper = [(key, below) for key, below in plan.named.items() if key in value]
        if plan.others is not None:
            deeper += [(key, plan.others) for key in value if key not in plan.properties]
        for key, below in deeper:
            filled = value[key] if key in known else default(value[key], below)
            if filled is not value[key]:
                found[key] = filled
        return {**value, **found} if found else value
    if isinstance(value, list) and plan.items is not None:
        items = [default(item, plan.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


class _Plan:
    """Where a schema has defaults."""

    def __init__(self, schema: Schema) -> None:
        self.properties = properties = schema.get("properties") or {}
        self.missing = [
            (key, default(below["default"], below)) for key, below in properties.items() if "default" in below
        ]
        self.named = {key: below for key, below in properties.items() if _has_defaults(below)}
        self.others = _if_defaults(schema.get("additionalProperties"))
        self.items = _if_defaults(schema.get("items"))


_plan = schemas.once(_Plan)


def _has_defaults(schema: Schema) -> bool:
    """Whether there is a default below."""
    plan = _plan(schema)
    return bool(plan.missing or plan.named or plan.others is not None or plan.items is not None)


def _if_defaults(schema: Any) -> Schema | None:
    return schema if isinstance(schema, dict) and _has_defaults(schema) else None
