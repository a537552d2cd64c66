"""Structural schemas: those of the built-in kinds, from `builtin.json`, and the parts of a schema.

Schemas are shared and must not be changed by callers: a reference is replaced by the definition's schema.
"""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from serving.resources.kinds import Kind

Schema = dict[str, Any]
T = TypeVar("T")

ANY: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""Schema of content that the schema of its field does not describe."""


@cache
def builtin() -> dict[str, Any]:
    """Return `builtin.json`.

    `kinds` maps a kind, such as `Pod`, to the name of its definition; `definitions` maps such a name to a
    schema, whose `$ref` are bare names of other definitions.
    """
    text = files(__package__).joinpath("builtin.json").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def of_builtin(kind: Kind) -> Schema:
    """Return the schema of whole objects of this built-in kind, without references."""
    return definition_of(builtin()["kinds"][kind.kind])


@cache
def definition_of(name: str) -> Schema:
    """Return one built-in definition such as `PodSpec`, without references.

    Raises:
        KeyError: there is none.
    """
    resolved = _resolve(builtin()["definitions"][name])
    assert isinstance(resolved, dict)
    return resolved


def _resolve(node: Any) -> Any:
    if isinstance(node, list):
        return [_resolve(child) for child in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return {**definition_of(node["$ref"]), **{k: v for k, v in node.items() if k != "$ref"}}
    return {key: _resolve(value) for key, value in node.items()}


def child(schema: Schema, key: str) -> Schema | None:
    """Return the schema below a map's key, or None where the key is unknown."""
    properties = schema.get("properties")
    if properties is not None and key in properties:
        below: Schema = properties[key]
        return below
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return values
    return ANY if schema.get("x-kubernetes-preserve-unknown-fields") else None


def items(schema: Schema) -> Schema:
    """Return the schema of a list's items."""
    below: Schema = schema.get("items") or ANY
    return below


def map_keys(schema: Schema) -> tuple[str, ...]:
    """Return the keys of a list-map's items; empty where the list is no list-map."""
    if schema.get("x-kubernetes-list-type") != "map":
        return ()
    return tuple(schema.get("x-kubernetes-list-map-keys") or ())


def key_of(item: Any, schema: Schema) -> dict[str, Any] | None:
    """Return a list-map item's key, by field; an omitted field has its default. None if a field has no value.

    `schema` is the list's.
    """
    if not isinstance(item, dict):
        return None
    properties = items(schema).get("properties") or {}
    key = {}
    for name in map_keys(schema):
        value = item.get(name)
        if value is None:
            value = properties.get(name, {}).get("default")
        if value is None:
            return None
        key[name] = value
    return key


def is_atomic(schema: Schema) -> bool:
    """Whether a map or list is written and owned as a whole.

    These are atomic maps, and lists that are neither list-maps nor sets.
    """
    if schema.get("x-kubernetes-map-type") == "atomic":
        return True
    if schema.get("type") == "array" or "items" in schema:
        return bool(schema.get("x-kubernetes-list-type", "atomic") == "atomic")
    return False


def is_associative(schema: Schema) -> bool:
    """Whether a list's items are written and owned one by one: those of list-maps and sets.

    An undescribed list is owned as a whole; the members of an undescribed map are owned one by one.
    """
    return schema.get("x-kubernetes-list-type") in ("map", "set")


def path_step(key: str) -> str:
    """Return the path of a member relative to its map; a key that is no identifier stands in brackets."""
    return f".{key}" if key.replace("-", "").replace("_", "").isalnum() else f"[{key}]"


def cached_by_schema(make: Callable[[Schema], T]) -> Callable[[Schema], T]:
    """Return `make` with a cache by the schema's identity: schemas are shared and never change.

    The cache keeps each schema alive, so that no other one gets its `id`.
    """
    made: dict[int, tuple[Schema, T]] = {}

    def find(schema: Schema) -> T:
        known = made.get(id(schema))
        if known is None:
            known = made[id(schema)] = (schema, make(schema))
        return known[1]

    return find


def clone(value: Any) -> Any:
    """Return a deep copy of JSON data."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value
