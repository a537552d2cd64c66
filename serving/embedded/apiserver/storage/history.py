"""What happened, in order, and how far back it is known: the list-then-watch guarantee as pure data.

A list is the state as of one resourceVersion; a watch from that version is every later change, once, in order.
Both are answered from the same window of changes, each of which knows the object before and after it, so that
a selector's transitions (an object that stops matching is DELETED to that watcher) and the state as of an older
version (the later pages of a list) need no second source. Must not know of sockets, files or time.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from serving import errors
from serving.objects import Object

Matches = Callable[[Object], bool]


class Key(NamedTuple):
    """Namespace (empty where there is none) and name; sorts as kube-apiserver's lists do."""

    namespace: str
    name: str


class Entry:
    """One version of one object; serialized once, shared by every list and watcher. Must not be changed."""

    __slots__ = ("body", "object", "version")

    def __init__(self, obj: Object, body: bytes | None = None) -> None:
        """Wrap an object whose resourceVersion is set.

        Raises:
            TypeError: it is not JSON (orjson's JSONEncodeError), for example nested too deeply.
        """
        self.object = obj
        self.version = int(obj["metadata"]["resourceVersion"])
        self.body = orjson.dumps(obj) if body is None else body


def versioned(obj: Object, version: int) -> Object:
    """Return the object with this resourceVersion; what it shares with the argument must not be changed."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


@dataclass(frozen=True)
class Change:
    """One committed write: `before` is None for a creation, `after` for a removal."""

    version: int
    kind: str
    key: Key
    before: Entry | None
    after: Entry | None

    def last(self) -> Entry:
        """Return what a DELETED event carries: the last state under the version of the removal."""
        assert self.before is not None
        return Entry(versioned(self.before.object, self.version))


class Event(NamedTuple):
    """What one watcher is told: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    entry: Entry


def event_for(change: Change, matches: Matches) -> Event | None:
    """Return what a watcher with this selector is told of a change; None where it never saw the object."""
    was = change.before is not None and matches(change.before.object)
    if change.after is not None and matches(change.after.object):
        return Event("MODIFIED" if was else "ADDED", change.after)
    if not was:
        return None
    if change.after is None:
        return Event("DELETED", change.last())
    assert change.before is not None
    return Event("DELETED", Entry(versioned(change.before.object, change.version)))


class History:
    """The newest `limit` changes of all kinds, and for each kind the version below which some are forgotten."""

    def __init__(self, limit: int, floor: int) -> None:
        """Start empty: nothing at or below `floor` is known to have been followed by all its changes."""
        self._limit = limit
        self._floor = floor
        self._order: deque[str] = deque()
        self._changes: dict[str, deque[Change]] = {}
        self._floors: dict[str, int] = {}
        self.version = floor
        """resourceVersion of the newest change; every change up to it is here or forgotten."""

    def append(self, change: Change) -> None:
        """Add a change; versions must grow."""
        assert change.version > self.version
        self.version = change.version
        self._order.append(change.kind)
        self._changes.setdefault(change.kind, deque()).append(change)
        if len(self._order) > self._limit:
            kind = self._order.popleft()
            self._floors[kind] = self._changes[kind].popleft().version

    def since(self, kind: str, version: int) -> list[Change]:
        """Return every change of the kind after `version`, in order.

        Raises:
            errors.Gone: some are forgotten, or `version` was never given out by this store.
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

    def as_of(self, kind: str, version: int, now: Mapping[Key, Entry]) -> Mapping[Key, Entry]:
        """Return the kind's objects as they were at `version`, given those of this moment.

        Raises:
            errors.Gone: it is too long ago.
        """
        undone = self.since(kind, version)
        if not undone:
            return now
        past = dict(now)
        for change in reversed(undone):
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return past


def _version(change: Change) -> int:
    return change.version


def _newer(changes: deque[Change], version: int) -> Iterable[Change]:
    """Return the tail after `version`, walking from the newest: a watcher is usually a few changes behind."""
    tail: list[Change] = []
    for change in reversed(changes):
        if change.version <= version:
            break
        tail.append(change)
    return reversed(tail)


def rebuild(
    log: Iterable[tuple[int, str, Key, Entry | None]], now: Mapping[str, Mapping[Key, Entry]]
) -> Iterator[Change]:
    """Yield the changes, newest first, from a log (newest first) that keeps only what was before each.

    What was after a change is what was before the next one of the same object, or what is there now.
    """
    later: dict[tuple[str, Key], Entry | None] = {}
    for version, kind, key, before in log:
        after = later[kind, key] if (kind, key) in later else now.get(kind, {}).get(key)
        yield Change(version, kind, key, before, after)
        later[kind, key] = before


def _expired(version: int, message: str) -> errors.Gone:
    return errors.Gone(410, "Expired", message, details={"resourceVersion": str(version)})
