"""Fields of an object as paths with values: a simple reference for the API server's trees of fields."""

from typing import Any

from serving.embedded.apiserver.apply import field_trees
from serving.embedded.apiserver.apply.field_trees import Path
from serving.embedded.apiserver.schema import schemas

ITEM = object()
"""The value of the path of an item in a list."""


def leaves(value: Any, schema: dict[str, Any], path: Path = ()) -> dict[Path, Any]:
    """Return every field of a value: leaves with their values, and items of list-maps with `ITEM`."""
    fields: dict[Path, Any] = {}
    if isinstance(value, dict) and value and not schemas.is_atomic(schema):
        for key, item in value.items():
            fields |= leaves(item, schemas.child(schema, key) or schemas.ANY, (*path, f"f:{key}"))
    elif isinstance(value, list) and value and schemas.is_associative(schema):
        for item in value:
            item_path = (*path, field_trees.element_of(item, schema))
            fields[item_path] = ITEM
            if isinstance(item, dict):
                fields |= leaves(item, schemas.items(schema), item_path)
    elif path:
        fields[path] = value
    return fields


def prefixes(paths: set[Path]) -> set[Path]:
    """Return the paths with all their prefixes."""
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}
