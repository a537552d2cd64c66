"""Reading a body by its schema: unknown fields, nulls, quantities and defaults. Validation is elsewhere."""

from typing import Any

from serving.embedded.conventions import schema as schemas
from serving.embedded.conventions.schema import Schema


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


def default(value: Any, schema: Schema) -> Any:
    """Return the value with the schema's defaults put in, in place where it is a map or a list."""
    if isinstance(value, dict):
        for key, below in (schema.get("properties") or {}).items():
            if key not in value and "default" in below:
                value[key] = schemas.clone(below["default"])
        for key, item in value.items():
            found = schemas.child(schema, key)
            if found:
                value[key] = default(item, found)
    elif isinstance(value, list):
        below = schemas.items(schema)
        for index, item in enumerate(value):
            value[index] = default(item, below)
    return value
