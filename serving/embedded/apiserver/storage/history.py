"""The newest changes in order, from which lists and watches are served. Pure.

A list is the state as of a resourceVersion; a watch from it has every later change once, in order. A change
has the object before and after it: for the transitions of a selector (an object that stops matching is
DELETED for that watcher), and for the state as of an older version (the later pages of a list).
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from serving import errors
from serving.objects import Object

Matches = Callable[[Object], bool]


class ObjectKey(NamedTuple):
    """Namespace (empty for cluster-scoped objects) and name, in the order of kube-apiserver's lists."""

    namespace: str
    name: str


class ObjectVersion:
    """One version of an object, serialized once for all lists and watchers. Immutable."""

    __slots__ = ("body", "object", "version")

    def __init__(self, obj: Object, body: bytes | None = None) -> None:
        """Wrap an object whose resourceVersion is set.

        Raises:
            TypeError: the object is not JSON (orjson's JSONEncodeError), for example nested too deeply.
        """
        self.object = obj
        self.version = int(obj["metadata"]["resourceVersion"])
        self.body = orjson.dumps(obj) if body is None else body


def versioned(obj: Object, version: int) -> Object:
    """Return a copy with this resourceVersion; it shares its parts with the argument."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


@dataclass(frozen=True)
class ObjectChange:
    """One committed write: `before` is None for a creation, `after` for a removal."""

    version: int
    kind: str
    key: ObjectKey
    before: ObjectVersion | None
    after: ObjectVersion | None

    @property
    def size(self) -> int:
        """Bytes of its newest object in JSON."""
        latest = self.after or self.before
        return 0 if latest is None else len(latest.body)

    def last(self) -> ObjectVersion:
        """Return the object of the DELETED event: the last state under the version of the removal."""
        assert self.before is not None
        return ObjectVersion(versioned(self.before.object, self.version))


class Event(NamedTuple):
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    entry: ObjectVersion


def event_for(change: ObjectChange, matches: Matches) -> Event | None:
    """Return the event of a change for a watcher with this selector, or None."""
    matched = change.before is not None and matches(change.before.object)
    if change.after is not None and matches(change.after.object):
        return Event("MODIFIED" if matched else "ADDED", change.after)
    if not matched:
        return None
    if change.after is None:
        return Event("DELETED", change.last())
    assert change.before is not None
    return Event("DELETED", ObjectVersion(versioned(change.before.object, change.version)))


class ChangeHistory:
    """The newest changes of all kinds; for each kind, the version below which some are forgotten."""

    def __init__(self, limit: int, floor: int, most_bytes: float = math.inf) -> None:
        """Start empty.

        Args:
            limit: the most changes.
            floor: the oldest version whose later changes are all known.
            most_bytes: the most bytes of their objects in JSON; the newest change is kept in any case.
        """
        self._limit, self._most_bytes = limit, most_bytes
        self._floor = floor
        self._order: deque[tuple[str, int]] = deque()
        """Kind and bytes of each change."""
        self._bytes = 0
        self._changes: dict[str, deque[ObjectChange]] = {}
        self._floors: dict[str, int] = {}
        self.version = floor
        """resourceVersion of the newest change."""

    def append(self, change: ObjectChange) -> None:
        """Add a change; versions must increase."""
        assert change.version > self.version
        self.version = change.version
        self._order.append((change.kind, change.size))
        self._bytes += change.size
        self._changes.setdefault(change.kind, deque()).append(change)
        while len(self._order) > self._limit or (self._bytes > self._most_bytes and len(self._order) > 1):
            kind, forgotten = self._order.popleft()
            self._bytes -= forgotten
            self._floors[kind] = self._changes[kind].popleft().version

    def since(self, kind: str, version: int) -> list[ObjectChange]:
        """Return every change of the kind after `version`, in order.

        Raises:
            errors.Gone: some changes are forgotten, or this store has not issued `version`.
        """
        floor = self._floors.get(kind, self._floor)
        if version < floor:
            raise _expired(version, f"too old resource version: {version} ({floor})")
        if version > self.version:
            raise _expired(version, f"unknown resource version: {version} (newest is {self.version})")
        changes = self._changes.get(kind)
        if not changes or changes[-1].version <= version:
            return []
        if changes[-1].version - version < len(changes):
            return list(_newer(changes, version))
        return list(changes)[bisect_right(changes, version, key=_version) :]

    def as_of(
        self, kind: str, version: int, current: Mapping[ObjectKey, ObjectVersion]
    ) -> Mapping[ObjectKey, ObjectVersion]:
        """Return the kind's objects as they were at `version`, given the current ones.

        Raises:
            errors.Gone: changes since then are forgotten.
        """
        undone = self.since(kind, version)
        if not undone:
            return current
        past = dict(current)
        for change in reversed(undone):
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return past


def _version(change: ObjectChange) -> int:
    return change.version


def _newer(changes: deque[ObjectChange], version: int) -> Iterable[ObjectChange]:
    """Return the changes after `version`, searched from the newest: most watchers are few changes behind."""
    tail: list[ObjectChange] = []
    for change in reversed(changes):
        if change.version <= version:
            break
        tail.append(change)
    return reversed(tail)


def rebuild(
    log: Iterable[tuple[int, str, ObjectKey, ObjectVersion | None]],
    current: Mapping[str, Mapping[ObjectKey, ObjectVersion]],
) -> Iterator[ObjectChange]:
    """Yield the changes, newest first, from a log (newest first) that keeps only the state before each.

    The state after a change is the state before the next change of the same object, or the current one.
    """
    later: dict[tuple[str, ObjectKey], ObjectVersion | None] = {}
    for version, kind, key, before in log:
        after = later[kind, key] if (kind, key) in later else current.get(kind, {}).get(key)
        yield ObjectChange(version, kind, key, before, after)
        later[kind, key] = before


def _expired(version: int, message: str) -> errors.Gone:
    return errors.Gone(410, "Expired", message, details={"resourceVersion": str(version)})
