"""managedFields of a write that meets no other owner's fields: nearly every one, as each field has one writer.

Then nothing is taken from anybody, and the trees of FieldsV1 are made, compared and kept as they are; `managed` has the
rules for all writes, in sets of paths, and this must say the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from serving.embedded.apiserver.apply import field_sets, managed_fields
from serving.embedded.apiserver.apply.field_sets import Tree
from serving.embedded.apiserver.apply.managed_fields import APPLY, Owner
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

Entry = dict[str, Any]

_LEAF: Tree = {}
"""Shared by all trees, which nobody changes."""
_METADATA = "f:metadata"
_SYSTEM = frozenset(path[0] for path in managed_fields.SYSTEM if len(path) == 1)
_SYSTEM_META = frozenset(path[1] for path in managed_fields.SYSTEM if len(path) == 2)


class Claimed(NamedTuple):
    """The object after an apply, and its managedFields then."""

    object: dict[str, Any]
    entries: list[Entry]


def created(obj: Mapping[str, Any], schema: Schema, owner: Owner, now: str) -> list[Entry]:
    """Return the managedFields of a new object of which the owner wrote this much."""
    fields = tree(obj, schema)
    return [managed_fields.entry(owner, fields, now)] if fields or owner.operation == APPLY else []


def applied(
    entries: list[Entry], live: dict[str, Any], config: dict[str, Any], schema: Schema, owner: Owner, *, now: str
) -> Claimed | None:  # fmt: skip
    """Return what `managed.applied` would, with the entries that `managed.write` would make of it.

    None where it takes more to say: other owners may have fields that the owner wants, or wanted.
    """
    wanted = tree(config, schema)
    own = next((entry for entry in entries if _is_of(entry, owner)), None)
    last = _fields(own) if own is not None else _LEAF
    others = [entry for entry in entries if entry is not own]
    if not wanted or not entries or any(_meets(other, wanted) or _meets(other, last) for other in others):
        return None
    merged = field_sets.merge(live, config, schema)
    if own is not None and last == wanted:
        return Claimed(merged, entries)
    fields = field_sets.fields_of(wanted)
    if gone := field_sets.fields_of(last) - fields:
        merged = managed_fields.without(merged, managed_fields.given_up(gone, fields), config, schema)
    found = sorted([*others, managed_fields.entry(owner, wanted, now)], key=managed_fields.owner_of)
    return Claimed(merged, found)


def _is_of(entry: Entry, owner: Owner) -> bool:
    return (
        entry.get("manager", "") == owner.manager
        and entry.get("subresource", "") == owner.subresource
        and managed_fields.owner_of(entry) == owner
    )


def _fields(entry: Entry) -> Tree:
    return entry.get("fieldsV1") or _LEAF


def _meets(entry: Entry, fields: Tree) -> bool:
    """Whether the entry has anything under a top-level field of these."""
    return not _fields(entry).keys().isdisjoint(fields)


def tree(obj: Mapping[str, Any], schema: Schema) -> Tree:
    """Return `encode` of `managed.fields`; must not be changed."""
    found = {key: below for key, below in _tree(obj, _plan(schema)).items() if key not in _SYSTEM}
    if _METADATA in found:
        meta = {key: below for key, below in found[_METADATA].items() if key not in _SYSTEM_META}
        if meta:
            found[_METADATA] = meta
        else:
            del found[_METADATA]
    return found


class _Plan:
    """What of a schema makes trees."""

    __slots__ = ("atomic", "items", "names", "schema", "united")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.atomic = schemas.is_atomic(schema)
        self.united = schemas.is_united(schema)
        self.names: dict[str, tuple[str, _Plan]] = {}
        self.items = schemas.items(schema)

    def member(self, key: str) -> "tuple[str, _Plan]":
        """Return the path element of a map's key and what is below."""
        found = self.names.get(key)
        if found is None:
            found = (f"f:{key}", _plan(schemas.child(self.schema, key) or schemas.ANY))
            if key in (self.schema.get("properties") or {}):
                self.names[key] = found
        return found


_plan = schemas.once(_Plan)


def _tree(value: Any, plan: _Plan) -> Tree:
    if not value or plan.atomic:
        return _LEAF
    if type(value) is dict:
        return dict(_members(value, plan))
    return _elements(value, plan) if plan.united and type(value) is list else _LEAF


def _members(value: dict[str, Any], plan: _Plan) -> Iterator[tuple[str, Tree]]:
    for key in sorted(value):
        item = value[key]
        element, below = plan.names.get(key) or plan.member(key)
        yield element, _tree(item, below) if type(item) is dict or type(item) is list else _LEAF


def _elements(value: list[Any], plan: _Plan) -> Tree:
    found: Tree = {}
    below = _plan(plan.items)
    for item in value:
        inner = _tree(item, below) if type(item) is dict else _LEAF
        found[field_sets.element_of(item, plan.schema)] = {".": _LEAF, **inner} if inner else _LEAF
    if len(found) < len(value):  # items that are the same to the schema: their fields together
        return field_sets.encode({path for path, _ in field_sets.leaves(value, plan.schema)})
    return dict(sorted(found.items())) if len(found) > 1 else found
