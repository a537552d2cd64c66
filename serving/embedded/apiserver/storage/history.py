"""The newest changes in order, from which lists and watches are served. Pure.

A list is the state as of a resourceVersion; a watch from that version has every later change once, in order.
A change has the object before and after it. A watch compares both with its selector: an object that stops
matching is DELETED for that watcher. A later page of a list undoes the changes since its first page.
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
    """`store.identifier` of the kind, such as `deployments.apps`; everywhere in this module."""
    key: ObjectKey
    before: ObjectVersion | None
    after: ObjectVersion | None

    @property
    def size(self) -> int:
        """Bytes of its newest object in JSON."""
        latest = self.after or self.before
        return 0 if latest is None else len(latest.body)

    def deleted(self) -> ObjectVersion:
        """Return the object of a DELETED event: the state before the change, with the change's version."""
        assert self.before is not None
        return ObjectVersion(versioned(self.before.object, self.version))


class Event(NamedTuple):
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    entry: ObjectVersion


def event_for(change: ObjectChange, matches: Matches) -> Event | None:
    """Return the event of a change for a watcher with this selector, or None."""
    matched_before = change.before is not None and matches(change.before.object)
    if change.after is not None and matches(change.after.object):
        return Event("MODIFIED" if matched_before else "ADDED", change.after)
    return Event("DELETED", change.deleted()) if matched_before else None


class LogEntry(NamedTuple):
    """A change as the database logs it: without the object after the change."""

    version: int
    kind: str
    key: ObjectKey
    before: ObjectVersion | None


class ChangeHistory:
    """The newest changes of all kinds; for each kind, the version of its newest change that is forgotten."""

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
        """By kind, oldest first."""
        self._floors: dict[str, int] = {}
        """By kind, the version of the newest forgotten change."""
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
            kind, size = self._order.popleft()
            self._bytes -= size
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
        # Changes of all kinds share one sequence of versions, so this kind has at most so many newer changes.
        most_newer = changes[-1].version - version
        if most_newer < len(changes):
            return _newer(changes, version)
        # A deque takes linear time to reach an index in its middle; the search needs a list.
        return list(changes)[bisect_right(changes, version, key=_version) :]

    def as_of(
        self, kind: str, version: int, current: Mapping[ObjectKey, ObjectVersion]
    ) -> Mapping[ObjectKey, ObjectVersion]:
        """Return the kind's objects as they were at `version`, given the current ones.

        Raises:
            errors.Gone: as `since`.
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


def _newer(changes: deque[ObjectChange], version: int) -> list[ObjectChange]:
    """Return the changes after `version`, searched from the newest: most watchers are few changes behind."""
    newer: list[ObjectChange] = []
    for change in reversed(changes):
        if change.version <= version:
            break
        newer.append(change)
    newer.reverse()
    return newer


def rebuild(
    log: Iterable[LogEntry], current: Mapping[str, Mapping[ObjectKey, ObjectVersion]]
) -> Iterator[ObjectChange]:
    """Yield the changes, newest first, from the log (newest first) and the current objects by kind.

    The state after a change is the state before the next change of the same object, or the current one.
    """
    before_next: dict[tuple[str, ObjectKey], ObjectVersion | None] = {}
    for version, kind, key, before in log:
        is_newest = (kind, key) not in before_next
        after = current.get(kind, {}).get(key) if is_newest else before_next[kind, key]
        yield ObjectChange(version, kind, key, before, after)
        before_next[kind, key] = before


def _expired(version: int, message: str) -> errors.Gone:
    return errors.Gone(410, "Expired", message, details={"resourceVersion": str(version)})
