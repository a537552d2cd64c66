"""The owners of fields: managedFields under server-side apply and under every other write.

https://kubernetes.io/docs/reference/using-api/server-side-apply/ ; the rules are those of
sigs.k8s.io/structured-merge-diff/merge, with one difference: a map that loses its last owned field is removed
with its defaults (structured-merge-diff keeps the map, which kube-apiserver then refuses as incomplete).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from serving import errors
from serving.embedded.apiserver.apply import field_trees, merging
from serving.embedded.apiserver.apply.field_trees import EMPTY, LEAF, Tree
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause

Entry = dict[str, Any]
"""An item of managedFields."""

APPLY, UPDATE = "Apply", "Update"

_METADATA = "f:metadata"
_SYSTEM = frozenset({"f:apiVersion", "f:kind"})
_SYSTEM_METADATA = frozenset(
    f"f:{name}"
    for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
        "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
    )
)  # fmt: skip
"""Fields that the server writes; nobody owns them."""


class Owner(NamedTuple):
    """The owner of the fields in an entry of managedFields; each owner has one entry."""

    operation: str
    """`APPLY` or `UPDATE`."""
    manager: str
    subresource: str = ""
    api_version: str = ""


Managers = Mapping[Owner, Tree]
"""The fields that each owner has."""


class Applied(NamedTuple):
    """The object after an apply, and its managedFields."""

    object: dict[str, Any]
    entries: list[Entry]


def owned_fields(obj: Mapping[str, Any], schema: Schema) -> Tree:
    """Return the fields of an object that can be owned."""
    return _without_system(field_trees.fields(obj, schema))


def _without_system(tree: Tree) -> Tree:
    ownable = {key: below for key, below in tree.items() if key not in _SYSTEM}
    if _METADATA in ownable:
        ownable[_METADATA] = {
            key: below for key, below in ownable[_METADATA].items() if key not in _SYSTEM_METADATA
        }
        if not ownable[_METADATA]:
            del ownable[_METADATA]
    return ownable


def _difference(
    before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema
) -> field_trees.Difference:
    return field_trees.Difference(
        *(_without_system(tree) for tree in field_trees.difference(before, after, schema))
    )


def created(obj: Mapping[str, Any], schema: Schema, owner: Owner, now: str) -> list[Entry]:
    """Return the managedFields of a new object of which the owner wrote `obj`."""
    return _write({owner: owned_fields(obj, schema)}, (), now)


def updated(
    entries: Sequence[Entry],
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    schema: Schema,
    owner: Owner,
    *,
    now: str,
) -> list[Entry]:
    """Return managedFields after a write other than apply: the writer alone owns the fields it changed."""
    difference = _difference(old, new, schema)
    changed = field_trees.union(difference.added, difference.modified)
    managers = _read(entries)
    after = {other: _lose(fields, difference.removed, changed) for other, fields in managers.items()}
    kept = field_trees.without(managers.get(owner, EMPTY), difference.removed)
    return _write({**after, owner: field_trees.union(kept, changed)}, entries, now)


def applied(
    entries: Sequence[Entry],
    live: dict[str, Any],
    config: dict[str, Any],
    schema: Schema,
    owner: Owner,
    *,
    force: bool,
    now: str,
) -> Applied:
    """Return the live object with the configuration applied by `owner`.

    A field of the owner's last apply that this configuration lacks is removed, unless another owner has it.

    Raises:
        errors.Conflict: another owner has another value, and `force` is not set.
    """
    managers = _read(entries)
    if not managers:
        before = Owner(UPDATE, "before-first-apply", "", owner.api_version)
        managers[before] = owned_fields(live, schema)
    last = managers.pop(owner, EMPTY)
    desired = owned_fields(config, schema)
    result: dict[str, Any] = merging.merge(live, config, schema)
    if dropped := field_trees.without(last, desired):
        owned = desired
        for fields in managers.values():
            owned = field_trees.union(owned, fields)
        remaining = merging.remove(result, _fields_to_remove(dropped, owned), schema) or {}
        # The removal takes emptied maps and lists with it; the configuration may have these, as empty ones.
        result = merging.merge(remaining, config, schema)
    # Only owners of fields in the same top-level members can lose fields, or be in conflict.
    members = desired.keys() | last.keys()
    contenders = {
        other: fields for other, fields in managers.items() if not fields.keys().isdisjoint(members)
    }
    if contenders:
        difference = _difference(live, result, schema)
        changed = field_trees.intersection(field_trees.union(difference.added, difference.modified), desired)
        conflicts = {other: field_trees.intersection(fields, changed) for other, fields in contenders.items()}
        if any(conflicts.values()) and not force:
            raise _conflict({other: fields for other, fields in conflicts.items() if fields})
        managers |= {
            other: _lose(fields, difference.removed, changed) for other, fields in contenders.items()
        }
    return Applied(result, _write({**managers, owner: desired}, entries, now))


def well_formed(entries: Sequence[Entry]) -> list[Entry]:
    """Return the managedFields that a client sent, without the parts of the entries that are no trees."""
    return [
        _entry(_owner_of(entry), field_trees.well_formed(entry.get("fieldsV1") or {}), entry.get("time", ""))
        for entry in entries
        if entry
    ]


def _lose(fields: Tree, removed: Tree, changed: Tree) -> Tree:
    """Return the fields that an owner keeps after a write by another owner."""
    return field_trees.without(field_trees.without(fields, removed), changed)


def _fields_to_remove(dropped: Tree, owned: Tree) -> Tree:
    """Return the dropped fields that no owner has, with their parents in which no owner has a field.

    A parent is removed with its defaults, which have no owner. A top-level member is removed only if it is a
    dropped field itself.
    """
    removed: Tree = {}
    for key, fields in dropped.items():
        if key not in owned and field_trees.is_field(fields):
            removed[key] = LEAF
        elif below := _topmost(fields, owned.get(key, EMPTY)):
            removed[key] = below
    return removed


def _topmost(fields: Tree, owned: Tree) -> Tree:
    """Return the topmost fields on the way to `fields` in which no owner has a field.

    An item of a list that is itself in `fields`, and that no owner has itself, is among them although others
    own fields below it: the rest of an item has no key. Those that wrote one of its fields do not own it.
    """
    topmost: Tree = {}
    for key, below in field_trees.children(fields).items():
        is_item = not key.startswith("f:")
        if key not in owned or (
            is_item and field_trees.is_field(below) and not field_trees.is_field(owned[key])
        ):
            topmost[key] = LEAF
        elif deeper := _topmost(below, owned[key]):
            topmost[key] = deeper
    return topmost


def _read(entries: Sequence[Entry]) -> dict[Owner, Tree]:
    return {_owner_of(entry): entry.get("fieldsV1") or EMPTY for entry in entries if entry}


def _write(managers: Managers, old_entries: Sequence[Entry], now: str) -> list[Entry]:
    """Return managedFields; an entry keeps its time unless its fields have changed."""
    known = {_owner_of(entry): entry for entry in old_entries if entry}
    # An owner without fields gets no entry. If no owner has fields, the entry of an apply is kept
    # nevertheless: without any entry the next apply would count as the first.
    has_no_fields = not any(managers.values())
    entries = []
    for owner in sorted(managers):
        fields, entry = managers[owner], known.get(owner)
        if not fields and not (has_no_fields and owner.operation == APPLY):
            continue
        if entry is not None and entry.get("time") and entry.get("fieldsV1") == fields:
            entries.append(entry)
        else:
            entries.append(_entry(owner, fields, now))
    return entries


def _owner_of(entry: Entry) -> Owner:
    return Owner(
        entry.get("operation", UPDATE), entry.get("manager", ""), entry.get("subresource", ""),
        entry.get("apiVersion", ""),
    )  # fmt: skip


def _entry(owner: Owner, fields: Tree, time: str) -> Entry:
    subresource = {"subresource": owner.subresource} if owner.subresource else {}
    return {
        "manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api_version, "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields, **subresource,
    }  # fmt: skip


def _conflict(conflicts: Managers) -> errors.Conflict:
    causes, lines = [], []
    for owner in sorted(conflicts):
        part = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        conflict_with = f'conflict with "{owner.manager}"{part} using {owner.api_version}'
        paths = sorted(field_trees.describe(path) for path in field_trees.paths(conflicts[owner]))
        causes += [Cause(path, conflict_with, "FieldManagerConflict") for path in paths]
        lines += [f"{conflict_with}: {path}" for path in paths]
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    detail = lines[0] if len(lines) == 1 else "\n- " + "\n- ".join(lines)
    return errors.Conflict(409, "Conflict", f"Apply failed with {count}: {detail}", causes)
