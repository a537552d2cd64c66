"""Sets of fields as trees in the FieldsV1 notation of managedFields.

A tree's keys are path elements: `f:NAME` is a map's member, `k:JSON` an item of a list-map by its key,
`v:JSON` a member of a set. An empty tree below a key means the field itself; `.` means the field itself
beside fields below it. An empty tree is the empty set. Trees are shared and must not be changed.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

Path = tuple[str, ...]
Tree = dict[str, Any]

LEAF: Tree = {}
EMPTY: Tree = {}
_ITSELF = "."


class Difference(NamedTuple):
    """The fields in which two values differ."""

    added: Tree
    removed: Tree
    modified: Tree


def fields(value: Any, schema: Schema) -> Tree:
    """Return the fields of an object. Values that the schema calls atomic are fields as a whole."""
    return _fields(value, _plan(schema))


def difference(before: Any, after: Any, schema: Schema) -> Difference:
    """Return the fields in which two objects differ; equal parts are not looked into."""
    if before == after:
        return Difference(EMPTY, EMPTY, EMPTY)
    added, removed, modified = _difference(before, after, _plan(schema))
    return Difference(added or EMPTY, removed or EMPTY, modified or EMPTY)


def union(first: Tree, second: Tree) -> Tree:
    """Return the fields of both sets."""
    if not first or not second:
        return first or second
    both = {**first, **second, **{key: _union(first[key], second[key]) for key in first if key in second}}
    return dict(sorted(both.items()))


def intersection(first: Tree, second: Tree) -> Tree:
    """Return the fields that are in both sets."""
    common = {key: _intersection(first[key], second[key]) for key in first if key in second}
    return {key: below for key, below in common.items() if below is not None}


def without(tree: Tree, excluded: Tree) -> Tree:
    """Return the fields of a set that are not in the excluded set."""
    if tree == excluded:
        return EMPTY
    if tree.keys().isdisjoint(excluded):
        return tree
    rest = {key: _without(below, excluded[key]) if key in excluded else below for key, below in tree.items()}
    return {key: below for key, below in rest.items() if below is not None}


def paths(tree: Tree, above: Path = ()) -> Iterator[Path]:
    """Yield the path of every field of a set."""
    for key, below in tree.items():
        if key == _ITSELF:
            yield above
        elif below:
            yield from paths(below, (*above, key))
        else:
            yield (*above, key)


def well_formed(tree: Mapping[str, Any]) -> Tree:
    """Return a tree that a client sent as FieldsV1, without its keys that are no path elements, and without
    the values in it that are no trees.

    A `.` alone is left out, as an empty tree means the same.
    """
    trees = ((key, below) for key, below in tree.items() if isinstance(below, dict) and _is_path_element(key))
    valid = {key: LEAF if key == _ITSELF else well_formed(below) for key, below in trees}
    return LEAF if valid.keys() == {_ITSELF} else valid


def _is_path_element(key: str) -> bool:
    element_type, content = key[:2], key[2:]
    if key == _ITSELF or element_type == "f:":
        return True
    if element_type not in ("k:", "v:"):
        return False
    try:
        value = orjson.loads(content)
    except ValueError:
        return False
    return element_type == "v:" or isinstance(value, dict)


def describe(path: Path) -> str:
    """Return a path as conflicts show it: `.spec.containers[name="a"].image`."""
    text = ""
    for element in path:
        element_type, content = element[:2], element[2:]
        if element_type == "f:":
            text += f".{content}"
        elif element_type == "k:":
            keys = (f"{key}={_compact(value)}" for key, value in orjson.loads(content).items())
            text += f"[{','.join(keys)}]"
        else:
            text += f"[={content}]"
    return text


def is_field(tree: Tree) -> bool:
    """Whether the field at the root of a tree is in the set itself, not only fields below it."""
    return not tree or _ITSELF in tree


def children(tree: Tree) -> Tree:
    """Return the fields below the root of a tree."""
    return {key: below for key, below in tree.items() if key != _ITSELF} if _ITSELF in tree else tree


def _node(below: Tree, *, itself: bool) -> Tree | None:
    """Return the tree of a field, or None where neither it nor a field below it is in the set."""
    if not below:
        return LEAF if itself else None
    return {_ITSELF: LEAF, **below} if itself else below


def _union(first: Tree, second: Tree) -> Tree:
    below = union(children(first), children(second))
    node = _node(below, itself=is_field(first) or is_field(second))
    assert node is not None
    return node


def _intersection(first: Tree, second: Tree) -> Tree | None:
    below = intersection(children(first), children(second))
    return _node(below, itself=is_field(first) and is_field(second))


def _without(tree: Tree, excluded: Tree) -> Tree | None:
    below = without(children(tree), children(excluded))
    return _node(below, itself=is_field(tree) and not is_field(excluded))


class _Plan:
    """The properties of a schema that field trees need, computed once for each schema to save time."""

    __slots__ = ("_items", "associative", "atomic", "members", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.atomic = schemas.is_atomic(schema)
        """Whether a map or list is one field as a whole."""
        self.associative = schemas.is_associative(schema)
        """Whether each item of a list is a field: in list-maps and sets."""
        self.members: dict[str, tuple[str, _Plan]] = {}
        """Cache of `member` for the properties in the schema; other keys, such as labels, have no bound."""
        self._items: _Plan | None = None

    def member(self, key: str) -> "tuple[str, _Plan]":
        """Return the path element of a map's key, and the plan of the value below."""
        known = self.members.get(key)
        if known is None:
            known = (f"f:{key}", _plan(schemas.child(self.schema, key) or schemas.ANY))
            if key in (self.schema.get("properties") or {}):
                self.members[key] = known
        return known

    @property
    def items(self) -> "_Plan":
        if self._items is None:
            self._items = _plan(schemas.items(self.schema))
        return self._items


_plan = schemas.cached_by_schema(_Plan)


def _fields(value: Any, plan: _Plan) -> Tree:
    """Return the tree of a value; `LEAF` if the value is one field as a whole."""
    if not value or plan.atomic:
        return LEAF
    if type(value) is dict:
        return dict(_member_fields(value, plan))
    if type(value) is not list or not plan.associative:
        return LEAF
    tree: Tree = {}
    for item in value:
        element, node = element_of(item, plan.schema), _item_fields(item, plan.items)
        tree[element] = _union(tree[element], node) if element in tree else node
    return dict(sorted(tree.items())) if len(tree) > 1 else tree


def _member_fields(value: dict[str, Any], plan: _Plan) -> Iterator[tuple[str, Tree]]:
    for key in sorted(value):
        item = value[key]
        element, below = plan.members.get(key) or plan.member(key)  # the first saves most of the calls
        yield element, _fields(item, below) if type(item) is dict or type(item) is list else LEAF


def _item_fields(item: Any, plan: _Plan) -> Tree:
    """Return the tree of a list's item, which unlike a map's member is a field beside the fields below it."""
    below = _fields(item, plan) if type(item) is dict else LEAF
    return {_ITSELF: LEAF, **below} if below else LEAF


def _difference(old: Any, new: Any, plan: _Plan) -> tuple[Tree | None, Tree | None, Tree | None]:
    """Return the trees of the fields added, removed and modified between unequal values.

    None stands for an empty set: an empty tree would stand for the value itself.
    """
    if not _is_divided(old, plan) and not _is_divided(new, plan):
        return None, None, LEAF
    if not _is_divided(old, plan) or not _is_divided(new, plan) or type(old) is not type(new):
        return _fields(new, plan), _fields(old, plan), None
    part_fields = _item_fields if type(old) is list else _fields
    added: Tree = {}
    removed: Tree = {}
    modified: Tree = {}
    for element, below, before, after in _changes(old, new, plan):
        if before is _ABSENT:
            added[element] = part_fields(after, below)
        elif after is _ABSENT:
            removed[element] = part_fields(before, below)
        else:
            parts = zip((added, removed, modified), _difference(before, after, below), strict=True)
            for tree, part in parts:
                if part is not None:
                    tree[element] = part
    return added or None, removed or None, modified or None


def _is_divided(value: Any, plan: _Plan) -> bool:
    """Whether a value consists of fields instead of being one field as a whole."""
    return (
        bool(value)
        and not plan.atomic
        and (type(value) is dict or (type(value) is list and plan.associative))
    )


_ABSENT = object()


def _changes(old: Any, new: Any, plan: _Plan) -> Iterator[tuple[str, _Plan, Any, Any]]:
    """Yield the path element, the plan, the old and the new value of each direct part that changed."""
    if type(old) is list:
        old = {element_of(item, plan.schema): item for item in old}
        new = {element_of(item, plan.schema): item for item in new}
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before != after:
            element, below = (key, plan.items) if plan.associative else plan.member(key)
            yield element, below, before, after


def element_of(item: Any, schema: Schema) -> str:
    """Return the path element of a list's item; an item without its key is known by its whole value."""
    name = _only_key(schema)
    # Most list-maps have one key with a string: the same text as from `key_of` below, in less time.
    only = item.get(name) if name and type(item) is dict else None
    if type(only) is str:
        return f'k:{{"{name}":{orjson.dumps(only).decode()}}}'
    key = schemas.key_of(item, schema)
    return f"v:{_compact(item)}" if key is None else f"k:{_compact(key)}"


@schemas.cached_by_schema
def _only_key(schema: Schema) -> str:
    """Return the name of a list-map's key where it is one alphanumeric name, else an empty string."""
    keys = schemas.map_keys(schema)
    return keys[0] if len(keys) == 1 and keys[0].isalnum() else ""


def _compact(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
