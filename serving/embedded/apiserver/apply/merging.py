"""Merges and removes fields of an object."""

from typing import Any, Final

from serving.embedded.apiserver.apply import field_trees
from serving.embedded.apiserver.apply.field_trees import Tree
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

_GONE: Final = object()
"""Stands for a removed value, as None stands for a stored null."""


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Return `live` with `config` over it: atomic values are replaced, maps, list-maps and sets united.

    The result shares parts with both.
    """
    if type(live) is dict and type(config) is dict and not schemas.is_atomic(schema):
        out = dict(live)
        for key, item in config.items():
            if key in live and (type(item) is dict or type(item) is list):
                out[key] = merge(live[key], item, schemas.child(schema, key) or schemas.ANY)
            else:
                out[key] = item
        return out
    if type(live) is list and type(config) is list and schemas.is_associative(schema):
        return _merge_lists(live, config, schema)
    return config


def _merge_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Unite two list-maps or sets.

    The items of the configuration keep its order. An item that only `live` has keeps its place behind all
    items that precede it in `live`.
    """
    new = {field_trees.element_of(item, schema): item for item in config}
    old = {field_trees.element_of(item, schema): item for item in live}
    order = list(old)
    pending = list(new)
    if order != pending:
        order = []
        for element in old:
            if element not in new:
                order.append(element)
            while element in pending:  # place the configuration's items up to this one
                order.append(pending.pop(0))
        order += pending
    below = schemas.items(schema)
    return [
        merge(old[element], new[element], below)
        if element in old and element in new
        else new.get(element, old.get(element))
        for element in order
    ]


def remove(value: Any, fields: Tree, schema: Schema) -> Any:
    """Return the value without these fields; None for a map or list of which nothing remains.

    Maps and lists in it of which nothing remains are removed too; stored nulls in it are kept.
    """
    if isinstance(value, dict):
        members = {
            key: _removed(item, fields.get(f"f:{key}"), schemas.child(schema, key) or schemas.ANY)
            for key, item in value.items()
        }
        return {key: item for key, item in members.items() if item is not _GONE} or None
    if isinstance(value, list):
        below = schemas.items(schema)
        items = [_removed(item, fields.get(field_trees.element_of(item, schema)), below) for item in value]
        return [item for item in items if item is not _GONE] or None
    return value


def _removed(item: Any, fields: Tree | None, schema: Schema) -> Any:
    """Return a part of a value without these fields; `_GONE` if the part is removed as a whole."""
    if fields is None:
        return item
    if field_trees.is_field(fields):
        return _GONE
    remaining = remove(item, fields, schema)
    return _GONE if remaining is None and item is not None else remaining
