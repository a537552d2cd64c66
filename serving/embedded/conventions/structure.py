"""Reading a body by its schema: unknown fields, nulls, quantities and defaults. Validation is elsewhere."""

from collections.abc import Container
from typing import Any

from serving.embedded.conventions import schema as schemas
from serving.embedded.conventions.schema import Schema

_HAVE_DEFAULTS: dict[int, tuple[Schema, bool]] = {}


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
    if not has_defaults(schema):
        return value
    if isinstance(value, dict):
        found = {
            key: schemas.clone(below["default"])
            for key, below in (schema.get("properties") or {}).items()
            if key not in value and "default" in below
        }
        for key, item in (*value.items(), *list(found.items())):
            below = schemas.child(schema, key)
            filled = default(item, below) if below and key not in known else item
            if filled is not item:
                found[key] = filled
        return {**value, **found} if found else value
    if isinstance(value, list):
        below = schemas.items(schema)
        items = [default(item, below) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def has_defaults(schema: Schema) -> bool:
    """Whether there is a default below; asked once per schema, as these are shared and never changed."""
    known = _HAVE_DEFAULTS.get(id(schema))
    if known is None or known[0] is not schema:
        parts = [
            *(schema.get("properties") or {}).values(),
            schema.get("items"),
            schema.get("additionalProperties"),
        ]
        found = any("default" in part or has_defaults(part) for part in parts if isinstance(part, dict))
        known = _HAVE_DEFAULTS[id(schema)] = (schema, found)
    return known[1]
