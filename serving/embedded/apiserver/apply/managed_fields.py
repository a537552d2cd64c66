"""Who owns which field: managedFields under server-side apply and under every other write.

https://kubernetes.io/docs/reference/using-api/server-side-apply/ ; the rules are those of
sigs.k8s.io/structured-merge-diff/merge, with one difference: a map that loses its last owned field goes whole, with
the defaults in it (there it would stay behind, and be refused as incomplete).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from serving import errors
from serving.embedded.apiserver.apply import field_sets
from serving.embedded.apiserver.apply.field_sets import Difference, Fields, Path
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause

APPLY, UPDATE = "Apply", "Update"

SYSTEM: tuple[Path, ...] = (
    ("f:apiVersion",), ("f:kind",),
    *(("f:metadata", f"f:{name}") for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
        "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
    )),
)  # fmt: skip
"""Fields that the server writes; nobody owns them."""


@dataclass(frozen=True, order=True)
class Owner:
    """One entry of managedFields."""

    operation: str
    manager: str
    subresource: str = ""
    api_version: str = ""


Managers = Mapping[Owner, Fields]


class Applied(NamedTuple):
    """The object after an apply, and who owns what then."""

    object: dict[str, Any]
    managers: Managers


def read(entries: list[dict[str, Any]] | None) -> tuple[dict[Owner, Fields], dict[Owner, str]]:
    """Return the owners' fields and when each was last written."""
    managers: dict[Owner, Fields] = {}
    times: dict[Owner, str] = {}
    for found in entries or ():
        if not found:
            continue
        owner = owner_of(found)
        managers[owner] = field_sets.fields_of(found.get("fieldsV1") or {})
        times[owner] = found.get("time", "")
    return managers, times


def write(managers: Managers, before: list[dict[str, Any]] | None, now: str) -> list[dict[str, Any]]:
    """Return managedFields; an entry's time moves only when its fields do."""
    old, times = read(before)
    entries = []
    empty = not any(
        managers.values()
    )  # then an apply of nothing is remembered, or the next would look like the first
    for owner in sorted(managers):
        if managers[owner] or (empty and owner.operation == APPLY):
            same = old.get(owner) == managers[owner]
            time = (times.get(owner) if same else "") or now
            entries.append(entry(owner, field_sets.tree_of(managers[owner]), time))
    return entries


def owner_of(entry: Mapping[str, Any]) -> Owner:
    """Return whose entry of managedFields it is."""
    return Owner(
        entry.get("operation", UPDATE), entry.get("manager", ""), entry.get("subresource", ""),
        entry.get("apiVersion", ""),
    )  # fmt: skip


def entry(owner: Owner, fields: field_sets.Tree, time: str) -> dict[str, Any]:
    """Return the owner's entry of managedFields."""
    made: dict[str, Any] = {
        "manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api_version, "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }  # fmt: skip
    if owner.subresource:
        made["subresource"] = owner.subresource
    return made


def fields(obj: Mapping[str, Any], schema: Schema) -> dict[Path, Any]:
    """Return the fields that can be owned, with their values."""
    found = dict(field_sets.leaves(dict(obj), schema))
    return {path: value for path, value in found.items() if path and not _is_system(path)}


def _is_system(path: Path) -> bool:
    return path[:1] in SYSTEM or path[:2] in SYSTEM or path == ("f:metadata",)


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema) -> Difference:
    """Return what differs of the fields that can be owned."""
    return Difference(
        *(
            frozenset(path for path in paths if path and not _is_system(path))
            for paths in field_sets.difference(before, after, schema)
        )
    )


def updated(
    managers: Managers, old: Mapping[str, Any] | None, new: Mapping[str, Any], schema: Schema, owner: Owner
) -> Managers:
    """Return who owns what after a write that is no apply: the writer owns what it changed, others lose it."""
    difference = _compare(old or {}, new, schema)
    changed = difference.added | difference.modified
    result = {other: owned - difference.removed - changed for other, owned in managers.items()}
    result[owner] = (managers.get(owner, frozenset()) - difference.removed) | changed
    return result


def applied(
    managers: Managers,
    live: dict[str, Any],
    config: dict[str, Any],
    schema: Schema,
    owner: Owner,
    *,
    force: bool,
) -> Applied:
    """Return the live object with the configuration applied by `owner`.

    What the owner named last time and no longer names is removed, unless somebody else owns it.

    Raises:
        errors.Conflict: another owner wants another value, and `force` is not set.
    """
    wanted = frozenset(fields(config, schema))
    others = {other: owned for other, owned in managers.items() if other != owner}
    merged = field_sets.merge(live, config, schema)
    gone = managers.get(owner, frozenset()) - wanted
    gone = given_up(gone, wanted | frozenset().union(*others.values())) if gone else gone
    result = without(merged, gone, config, schema) if gone else merged
    difference = _compare(live, result, schema)
    changed = (difference.added | difference.modified) & wanted
    conflicts = {other: owned & changed for other, owned in others.items() if owned & changed}
    if conflicts and not force:
        raise _conflict(conflicts)
    kept: dict[Owner, Fields] = {
        other: owned - difference.removed - changed for other, owned in others.items()
    }
    return Applied(result, {**kept, owner: wanted})


def without(
    merged: dict[str, Any], gone: Fields, config: Mapping[str, Any], schema: Schema
) -> dict[str, Any]:
    """Return the object without these fields, and without maps that this empties, unless the configuration names them."""
    left = field_sets.remove(merged, field_sets.encode(gone), schema) or {}
    result: dict[str, Any] = field_sets.merge(left, config, schema)
    return result


def given_up(last: Fields, owned: Fields) -> Fields:
    """Return what to remove: each path as high up as nothing that is still owned lies below it."""
    kept = field_sets.prefixes(owned)
    gone = set()
    for path in last - kept:
        for length in range(2, len(path) + 1):
            if path[:length] not in kept and path[:length] != ("f:metadata",):
                gone.add(path[:length])
                break
        else:
            gone.add(path)
    return frozenset(gone)


def _conflict(conflicts: Mapping[Owner, Fields]) -> errors.Conflict:
    causes, lines = [], []
    for owner in sorted(conflicts):
        part = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        who = f'conflict with "{owner.manager}"{part} using {owner.api_version}'
        paths = sorted(field_sets.describe(path) for path in conflicts[owner])
        causes += [Cause(path, who, "FieldManagerConflict") for path in paths]
        lines += [f"{who}: {path}" for path in paths]
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    detail = lines[0] if len(lines) == 1 else "\n- " + "\n- ".join(lines)
    return errors.Conflict(409, "Conflict", f"Apply failed with {count}: {detail}", causes)
