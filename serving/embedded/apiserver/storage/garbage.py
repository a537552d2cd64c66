"""What must go because what it belonged to has gone: owner references, namespaces, old Events. Pure.

Each function looks at one object and those around it and returns the steps to take now; called again after every
change around the object, it converges. k8s.io/kubernetes/pkg/controller/garbagecollector has the rules.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.apiserver.writes.deletion import FOREGROUND, ORPHAN
from serving.objects import Object
from serving.resources import kinds

Alive = Callable[[str], Object | None]
"""The object with this uid, or None."""


@dataclass(frozen=True)
class Delete:
    """Delete the object."""

    target: Object
    policy: str = "Background"


@dataclass(frozen=True)
class Rewrite:
    """Store the object as `after`."""

    target: Object
    after: Object


@dataclass(frozen=True)
class Remove:
    """Take the object away: whatever held it has let go."""

    target: Object


Step = Delete | Rewrite | Remove


def references(obj: Object) -> list[dict[str, Any]]:
    """Return the owner references."""
    return obj["metadata"].get("ownerReferences") or []


def deleting(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def dependent(obj: Object, alive: Alive) -> list[Step]:
    """Return what becomes of an object for the sake of its owners."""
    found = references(obj)
    if not found or deleting(obj):
        return []
    absent = [ref for ref in found if not _holds(obj, ref, alive)]
    if not absent:
        return []
    if len(absent) < len(found):
        return [Rewrite(obj, _without(obj, {ref["uid"] for ref in absent}))]
    return [Delete(obj)]


def _holds(obj: Object, ref: dict[str, Any], alive: Alive) -> bool:
    if kinds.of(ref.get("apiVersion", ""), ref.get("kind", "")) is None:
        return True  # a kind that is not served here: nobody can say that the owner has gone
    owner = alive(ref.get("uid", ""))
    if owner is None:
        return False
    namespace = owner["metadata"].get("namespace")
    if namespace not in (None, obj["metadata"].get("namespace")):
        return False  # an owner in another namespace is none, as on a cluster
    return owner["metadata"]["name"] == ref.get("name") and owner.get("kind") == ref.get("kind")


def owner(obj: Object, dependents: Sequence[Object]) -> list[Step]:
    """Return what a deletion of the object that waits for its dependents does next."""
    finalizers = obj["metadata"].get("finalizers") or []
    if not deleting(obj):
        return []
    uid = obj["metadata"]["uid"]
    if ORPHAN in finalizers:
        steps: list[Step] = [Rewrite(child, _without(child, {uid})) for child in dependents]
        return steps or [_released(obj, ORPHAN)]
    if FOREGROUND in finalizers:
        waiting = [child for child in dependents if _blocks(child, uid)]
        going: list[Step] = [
            Delete(child, "Foreground") for child in dependents if not deleting(child) and _alone(child, uid)
        ]
        return going if waiting else [*going, _released(obj, FOREGROUND)]
    return []


def _blocks(child: Object, uid: str) -> bool:
    return any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in references(child))


def _alone(child: Object, uid: str) -> bool:
    """Whether no other owner keeps the child; one that is kept loses the reference when the owner has gone."""
    return all(ref["uid"] == uid for ref in references(child))


def _released(obj: Object, finalizer: str) -> Step:
    left = [name for name in obj["metadata"]["finalizers"] if name != finalizer]
    if not left and not obj["metadata"].get("deletionGracePeriodSeconds"):
        return Remove(obj)
    return Rewrite(obj, _with_meta(obj, "finalizers", left))


def _without(obj: Object, uids: set[str]) -> Object:
    return _with_meta(obj, "ownerReferences", [ref for ref in references(obj) if ref["uid"] not in uids])


def _with_meta(obj: Object, field: str, value: list[Any]) -> Object:
    meta = {**obj["metadata"], field: value}
    if not value:
        del meta[field]
    return {**obj, "metadata": meta}


def namespace(obj: Object, content: Iterable[Object]) -> list[Step]:
    """Return what a namespace that is going does next: its content goes, then itself."""
    if not deleting(obj):
        return []
    left = list(content)
    steps: list[Step] = [Delete(child) for child in left if not deleting(child)]
    if left or obj["metadata"].get("finalizers"):
        return steps
    return [Remove(obj)]


def expired(event: Object, now: dt.datetime, ttl_seconds: float) -> bool:
    """Whether an Event is older than its time to live; one that happened again starts over."""
    series = (event.get("series") or {}).get("lastObservedTime")
    stamps = (
        series, event.get("lastTimestamp"), event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )  # fmt: skip
    seen = [moment for stamp in stamps if stamp and (moment := _parsed(stamp)) is not None]
    return bool(seen) and (now - max(seen)).total_seconds() > ttl_seconds


def _parsed(stamp: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
