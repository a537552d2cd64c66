"""Sets of fields, as managedFields have them, and what merging and removing fields does to an object.

A path is a tuple of elements in the FieldsV1 notation: `f:<name>` a map's key, `k:<JSON>` a list-map's item, `v:<JSON>`
a set's member (https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management; the semantics are
sigs.k8s.io/structured-merge-diff's). Atomic values are leaves.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

Path = tuple[str, ...]
Fields = frozenset[Path]
Tree = dict[str, Any]

ITEM = object()
"""The value of a path that says only that a list has this item."""
REMEMBERED = 1024
"""Trees of fields kept in both forms: objects of one kind and manager mostly have the same, at 10 KB each."""


class Difference(NamedTuple):
    """What two values differ in, by path."""

    added: Fields
    removed: Fields
    modified: Fields


def leaves(value: Any, schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every field of the value: leaves with their values, and items of list-maps with `ITEM`."""
    if isinstance(value, dict) and value and not schemas.is_atomic(schema):
        for key, item in value.items():
            yield from leaves(item, schemas.child(schema, key) or schemas.ANY, (*path, f"f:{key}"))
    elif isinstance(value, list) and value and schemas.is_united(schema):
        for element, item in _elements(value, schema):
            yield (*path, element), ITEM
            if isinstance(item, dict):
                yield from leaves(item, schemas.items(schema), (*path, element))
    else:
        yield path, value


def _elements(value: list[Any], schema: Schema) -> Iterator[tuple[str, Any]]:
    for item in value:
        yield element_of(item, schema), item


def element_of(item: Any, schema: Schema) -> str:
    """Return the path element of a list's item; without its key, an item is known by its whole value."""
    name = _only_key(schema)
    only = item.get(name) if name and type(item) is dict else None
    if type(only) is str:
        return f'k:{{"{name}":{orjson.dumps(only).decode()}}}'
    key = schemas.key_of(item, schema)
    return f"v:{_compact(item)}" if key is None else f"k:{_compact(key)}"


@schemas.once
def _only_key(schema: Schema) -> str:
    """Return the one name that a list-map's key has, if it is one and plain."""
    keys = schemas.map_keys(schema)
    return keys[0] if len(keys) == 1 and keys[0].isalnum() else ""


def _compact(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def difference(before: Any, after: Any, schema: Schema) -> Difference:
    """Return in which of their `leaves` two values differ; what is the same in both is not looked into."""
    found = Difference(frozenset(), frozenset(), frozenset())
    added, removed, modified = set(found.added), set(found.removed), set(found.modified)
    todo: list[tuple[Any, Any, Schema, Path]] = [(before, after, schema, ())]
    while todo:
        old, new, below, path = todo.pop()
        if old == new:
            continue
        olds, news = _members(old, below, path), _members(new, below, path)
        if olds is None and news is None:
            modified.add(path)
            continue
        if olds is None or news is None or isinstance(old, dict) != isinstance(new, dict):
            removed |= {gone for gone, _ in leaves(old, below, path)}
            added |= {come for come, _ in leaves(new, below, path)}
            continue
        for at, (value, deeper) in olds.items():
            if at in news:
                todo.append((value, news[at][0], deeper, at))
            else:
                removed |= _whole(at, value, deeper, in_list=isinstance(old, list))
        for at, (value, deeper) in news.items():
            if at not in olds:
                added |= _whole(at, value, deeper, in_list=isinstance(new, list))
    return Difference(frozenset(added), frozenset(removed), frozenset(modified))


def _members(value: Any, schema: Schema, path: Path) -> dict[Path, tuple[Any, Schema]] | None:
    """Return what lies directly below, with its schema; None where the value is a leaf."""
    if not value or schemas.is_atomic(schema):
        return None
    if isinstance(value, dict):
        return {
            (*path, f"f:{key}"): (item, schemas.child(schema, key) or schemas.ANY)
            for key, item in value.items()
        }
    if isinstance(value, list) and schemas.is_united(schema):
        below = schemas.items(schema)
        return {(*path, element): (item, below) for element, item in _elements(value, schema)}
    return None


def _whole(path: Path, value: Any, schema: Schema, *, in_list: bool) -> set[Path]:
    """Return all paths of a member."""
    if not in_list:
        return {found for found, _ in leaves(value, schema, path)}
    below = leaves(value, schema, path) if isinstance(value, dict) else ()
    return {path, *(found for found, _ in below)}


@lru_cache(REMEMBERED)
def tree_of(fields: Fields) -> Tree:
    """Return `encode` of the fields, remembered: must not be changed."""
    return encode(fields)


def fields_of(tree: Tree) -> Fields:
    """Return `decode` of the tree, remembered."""
    return _fields_of(orjson.dumps(tree))


@lru_cache(REMEMBERED)
def _fields_of(tree: bytes) -> Fields:
    return frozenset(decode(orjson.loads(tree)))


def encode(fields: Iterable[Path]) -> Tree:
    """Return the FieldsV1 tree."""
    tree: Tree = {}
    for path in sorted(fields):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return {key: _without_lonely_dots(below) for key, below in tree.items()}


def _without_lonely_dots(tree: Tree) -> Tree:
    if tree.keys() == {"."}:
        return {}
    return {key: _without_lonely_dots(below) if key != "." else {} for key, below in tree.items()}


def decode(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of a FieldsV1 tree."""
    if not tree and path:
        yield path
    for key, below in tree.items():
        if key == ".":
            yield path
        elif isinstance(below, dict):
            yield from decode(below, (*path, key))


def describe(path: Path) -> str:
    """Return the path as conflicts show it: `.spec.containers[name="a"].image`."""
    text = ""
    for element in path:
        sort, content = element[:2], element[2:]
        if sort == "f:":
            text += f".{content}"
        elif sort == "k:":
            text += (
                "[" + ",".join(f"{key}={_compact(value)}" for key, value in json.loads(content).items()) + "]"
            )
        else:
            text += f"[={content}]"
    return text


def prefixes(fields: Iterable[Path]) -> frozenset[Path]:
    """Return the paths and all that lies above them."""
    return frozenset(path[:length] for path in fields for length in range(1, len(path) + 1))


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Return `live` with `config` put over it: atomic values replaced, maps, list-maps and sets united.

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
    if type(live) is list and type(config) is list and schemas.is_united(schema):
        return _merge_lists(live, config, schema)
    return config


def _merge_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """The configuration's order holds among its items; the others keep their neighbours."""
    wanted = dict(_elements(config, schema))
    have = dict(_elements(live, schema))
    order = list(have)
    pending = list(wanted)
    if order != pending:
        order = []
        for element in have:
            if element not in wanted:
                order.append(element)
            while element in pending:
                order.append(pending.pop(0))
        order += pending
    below = schemas.items(schema)
    return [
        merge(have[element], wanted[element], below)
        if element in have and element in wanted
        else wanted.get(element, have.get(element))
        for element in order
    ]


def remove(value: Any, tree: Tree, schema: Schema) -> Any:
    """Return the value without the tree's members; maps and lists that this empties go too (as None)."""
    if isinstance(value, dict):
        out = {}
        for key, item in value.items():
            kept = _kept(item, tree.get(f"f:{key}"), schemas.child(schema, key) or schemas.ANY)
            if kept is not None:
                out[key] = kept
        return out or None
    if isinstance(value, list):
        below = schemas.items(schema)
        kept_items = [_kept(item, tree.get(element), below) for element, item in _elements(value, schema)]
        return [item for item in kept_items if item is not None] or None
    return value


def _kept(item: Any, tree: Tree | None, schema: Schema) -> Any:
    if tree is None:
        return item
    if not tree or "." in tree:
        return None
    return remove(item, tree, schema)
