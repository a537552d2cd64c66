"""Fields of an object as paths with their values: a plain model that the API server's trees of fields are held against."""

from typing import Any

from serving.embedded.apiserver.apply import field_trees
from serving.embedded.apiserver.apply.field_trees import Path
from serving.embedded.apiserver.schema import schemas

ITEM = object()
"""The value of a path that says only that a list has this item."""


def leaves(value: Any, schema: dict[str, Any], path: Path = ()) -> dict[Path, Any]:
    """Every field of the value: leaves with their values, and items of list-maps with `ITEM`."""
    found: dict[Path, Any] = {}
    if isinstance(value, dict) and value and not schemas.is_atomic(schema):
        for key, item in value.items():
            found |= leaves(item, schemas.child(schema, key) or schemas.ANY, (*path, f"f:{key}"))
    elif isinstance(value, list) and value and schemas.is_united(schema):
        for item in value:
            here = (*path, field_trees.element_of(item, schema))
            found[here] = ITEM
            if isinstance(item, dict):
                found |= leaves(item, schemas.items(schema), here)
    elif path:
        found[path] = value
    return found


def prefixes(paths: set[Path]) -> set[Path]:
    """The paths and all that lies above them."""
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}
