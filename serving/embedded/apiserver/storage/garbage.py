"""Decides which objects are removed with their owner, with their namespace, or by age (Events). Pure.

Each function takes an object and its owners or dependents and returns the next steps; called again after
every change, it converges. The rules are those of k8s.io/kubernetes/pkg/controller/garbagecollector.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.writes.deletion import FOREGROUND, ORPHAN
from serving.objects import Object, is_deleting

FindByUid = Callable[[str], Object | None]
"""Returns the object with this uid, or None."""


@dataclass(frozen=True)
class Delete:
    """Delete the object."""

    target: Object
    policy: str = "Background"
    """The `propagationPolicy`: what happens to the target's own dependents."""


@dataclass(frozen=True)
class Rewrite:
    """Store the object as `after`."""

    target: Object
    after: Object


@dataclass(frozen=True)
class RemoveFromStore:
    """Remove the object from the store: no finalizer or grace period holds it."""

    target: Object


Step = Delete | Rewrite | RemoveFromStore


def references(obj: Object) -> list[dict[str, Any]]:
    """Return the owner references of the object."""
    return obj["metadata"].get("ownerReferences") or []


def steps_for_dependent(stored_kinds: StoredKinds, obj: Object, find_by_uid: FindByUid) -> list[Step]:
    """Return the steps for an object with owners: references to absent ones are removed.

    If all are absent, the object is deleted.
    """
    owners = references(obj)
    if not owners or is_deleting(obj):
        return []
    absent = [ref for ref in owners if not _holds(stored_kinds, obj, ref, find_by_uid)]
    if not absent:
        return []
    if len(absent) < len(owners):
        return [Rewrite(obj, _without(obj, {ref["uid"] for ref in absent}))]
    return [Delete(obj)]


def _holds(stored_kinds: StoredKinds, obj: Object, ref: dict[str, Any], find_by_uid: FindByUid) -> bool:
    """Whether an owner reference keeps the object: its owner exists, or may exist."""
    if stored_kinds.of(ref.get("apiVersion", ""), ref.get("kind", "")) is None:
        return True  # a kind that is not served here: whether the owner exists is unknown
    owner = find_by_uid(ref.get("uid", ""))
    if owner is None:
        return False
    namespace = owner["metadata"].get("namespace")
    if namespace not in (None, obj["metadata"].get("namespace")):
        return False  # an owner in another namespace does not count, as on a cluster
    return owner["metadata"]["name"] == ref.get("name") and owner.get("kind") == ref.get("kind")


def steps_for_owner(obj: Object, dependents: Sequence[Object]) -> list[Step]:
    """Return the next steps of a deletion that first orphans the dependents, or deletes them (foreground).

    Foreground waits for the dependents with `blockOwnerDeletion`. One of these that has other owners loses
    its reference; any dependent without other owners is deleted.
    """
    finalizers = obj["metadata"].get("finalizers") or []
    if not is_deleting(obj):
        return []
    uid = obj["metadata"]["uid"]
    if ORPHAN in finalizers:
        steps: list[Step] = [Rewrite(child, _without(child, {uid})) for child in dependents]
        return steps or [_released(obj, ORPHAN)]
    if FOREGROUND in finalizers:
        releases: list[Step] = [
            Rewrite(child, _without(child, {uid}))
            for child in dependents
            if _blocks(child, uid) and not _is_only_owner(child, uid)
        ]
        is_blocked = any(_blocks(child, uid) for child in dependents)
        deletions: list[Step] = [
            Delete(child, "Foreground")
            for child in dependents
            if not is_deleting(child) and _is_only_owner(child, uid)
        ]
        if is_blocked:
            return [*releases, *deletions]
        return [*deletions, _released(obj, FOREGROUND)]  # without a blocking dependent there are no releases
    return []


def _blocks(child: Object, uid: str) -> bool:
    """Whether a foreground deletion of the owner with this uid waits for the child."""
    return any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in references(child))


def _is_only_owner(child: Object, uid: str) -> bool:
    """Whether the child has no other owner; with another owner, it only loses this reference."""
    return all(ref["uid"] == uid for ref in references(child))


def _released(obj: Object, finalizer: str) -> Step:
    """Return the step that removes a finalizer, and the object with its last one.

    A Pod with a grace period is kept: the node removes it once its processes have ended.
    """
    finalizers = [name for name in obj["metadata"]["finalizers"] if name != finalizer]
    if not finalizers and not obj["metadata"].get("deletionGracePeriodSeconds"):
        return RemoveFromStore(obj)
    return Rewrite(obj, _with_meta(obj, "finalizers", finalizers))


def _without(obj: Object, uids: set[str]) -> Object:
    """Return the object without its references to the owners with these uids."""
    return _with_meta(obj, "ownerReferences", [ref for ref in references(obj) if ref["uid"] not in uids])


def _with_meta(obj: Object, field: str, value: list[Any]) -> Object:
    """Return the object with a list in its metadata; an empty list removes the field."""
    meta = {**obj["metadata"], field: value}
    if not value:
        del meta[field]
    return {**obj, "metadata": meta}


def steps_for_namespace(obj: Object, content: Iterable[Object], dependents: Sequence[Object]) -> list[Step]:
    """Return the next steps of the deletion of a namespace: its content first, then the namespace.

    A propagation policy applies after the content is gone: its last step may remove the namespace.
    """
    if not is_deleting(obj):
        return []
    if remaining := list(content):
        return [Delete(child) for child in remaining if not is_deleting(child)]
    if steps := steps_for_owner(obj, dependents):
        return steps
    return [] if obj["metadata"].get("finalizers") else [RemoveFromStore(obj)]


def expired(event: Object, now: dt.datetime, ttl_seconds: float) -> bool:
    """Whether an Event is older than its time to live, counted from its latest occurrence."""
    series = (event.get("series") or {}).get("lastObservedTime")
    timestamps = (
        series,
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    moments = [
        moment for timestamp in timestamps if timestamp and (moment := _parse_time(timestamp)) is not None
    ]
    return bool(moments) and (now - max(moments)).total_seconds() > ttl_seconds


def _parse_time(timestamp: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
