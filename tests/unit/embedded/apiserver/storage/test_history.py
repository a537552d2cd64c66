"""List-then-watch: a list and the watch from its version lead to the same state as a later list."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving import errors
from serving.embedded.apiserver.storage.history import (
    ChangeHistory,
    Event,
    LogEntry,
    ObjectChange,
    ObjectKey,
    ObjectVersion,
    event_for,
    rebuild,
    versioned,
)

KINDS = ("models", "pods")
KEYS = [ObjectKey("a", "x"), ObjectKey("a", "y"), ObjectKey("b", "x")]


def red(obj: dict[str, Any]) -> bool:
    return bool(obj["metadata"]["labels"]["colour"] == "red")


def everything(_: dict[str, Any]) -> bool:
    return True


class Writers(RuleBasedStateMachine):
    """Concurrent writers, bounded memory, restarts, and watchers that lag, resume and follow a selector."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, dict[ObjectKey, ObjectVersion]] = {kind: {} for kind in KINDS}
        self.limit = 6
        self.history = ChangeHistory(self.limit, floor=1000)
        self.log: list[ObjectChange] = []
        self.watchers: list[tuple[str, Any, int, dict[ObjectKey, dict[str, Any]]]] = []
        self.past: dict[int, dict[str, dict[ObjectKey, ObjectVersion]]] = {1000: {kind: {} for kind in KINDS}}

    @rule(
        kind=st.sampled_from(KINDS), key=st.sampled_from(KEYS), colour=st.sampled_from(["red", "blue", None])
    )
    def write(self, kind: str, key: ObjectKey, colour: str | None) -> None:
        before, version = self.objects[kind].get(key), self.history.version + 1
        after = None
        if colour is not None:
            meta = {"name": key.name, "namespace": key.namespace, "labels": {"colour": colour}}
            after = ObjectVersion(versioned({"metadata": meta}, version))
        elif before is None:
            return
        change = ObjectChange(version, kind, key, before, after)
        self.history.append(change)
        self.log.append(change)
        if after is None:
            del self.objects[kind][key]
        else:
            self.objects[kind][key] = after
        self.past[version] = {name: dict(entries) for name, entries in self.objects.items()}

    @rule(kind=st.sampled_from(KINDS), selector=st.sampled_from([red, everything]))
    def list_then_watch(self, kind: str, selector: Any) -> None:
        seen = {key: e.object for key, e in self.objects[kind].items() if selector(e.object)}
        self.watchers.append((kind, selector, self.history.version, seen))

    @precondition(lambda self: self.watchers)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.watchers) - 1))
        kind, selector, version, seen = self.watchers[index]
        try:
            changes = self.history.since(kind, version)
        except errors.Gone:
            forgotten = [c for c in self.log[: -self.limit] if c.kind == kind and c.version > version]
            assert forgotten or version < 1000, "refused although no change is forgotten"
            del self.watchers[index]
            return
        for change in changes:
            follow(seen, event_for(change, selector), change.key)
        assert seen == {k: e.object for k, e in self.objects[kind].items() if selector(e.object)}
        self.watchers[index] = (kind, selector, self.history.version, seen)

    @rule()
    def restart(self) -> None:
        kept = self.log[-self.limit :]
        stored = [LogEntry(c.version, c.kind, c.key, c.before) for c in reversed(kept)]
        changes = list(rebuild(stored, self.objects))
        assert [(c.version, c.after) for c in reversed(changes)] == [(c.version, c.after) for c in kept]
        history = ChangeHistory(self.limit, changes[-1].version - 1 if changes else 1000)
        for change in reversed(changes):
            history.append(change)
        self.history = history
        floor = history.version - len(changes)
        self.watchers = [watcher for watcher in self.watchers if watcher[2] >= floor]

    @invariant()
    def the_past_can_be_listed_or_is_refused(self) -> None:
        for version, state in self.past.items():
            for kind in KINDS:
                try:
                    entries: Mapping[ObjectKey, ObjectVersion] = self.history.as_of(
                        kind, version, self.objects[kind]
                    )
                except errors.Gone:
                    continue
                assert dict(entries) == state[kind]


def follow(seen: dict[ObjectKey, dict[str, Any]], event: Event | None, key: ObjectKey) -> None:
    """Apply an event as a client does, and check that it is consistent."""
    if event is None:
        return
    assert event.entry.object["metadata"]["resourceVersion"] == str(event.entry.version)
    if event.type == "ADDED":
        assert key not in seen
        seen[key] = event.entry.object
    elif event.type == "MODIFIED":
        assert key in seen
        seen[key] = event.entry.object
    else:
        assert event.type == "DELETED"
        del seen[key]


TestListThenWatch = Writers.TestCase
TestListThenWatch.settings = settings(max_examples=60, stateful_step_count=40)


def entry(version: int, colour: str) -> ObjectVersion:
    meta = {"name": "x", "labels": {"colour": colour}, "resourceVersion": str(version)}
    return ObjectVersion({"metadata": meta})


def test_an_object_that_stops_matching_is_deleted_for_the_watcher_with_the_new_version() -> None:
    change = ObjectChange(7, "pods", ObjectKey("", "x"), entry(3, "red"), entry(7, "blue"))
    event = event_for(change, red)
    assert event is not None
    assert event.type == "DELETED"
    assert event.entry.object["metadata"] == {
        "name": "x",
        "labels": {"colour": "red"},
        "resourceVersion": "7",
    }


def test_an_object_that_starts_to_match_is_added_for_the_watcher() -> None:
    event = event_for(ObjectChange(7, "pods", ObjectKey("", "x"), entry(3, "blue"), entry(7, "red")), red)
    assert event is not None
    assert event.type == "ADDED"


@given(st.integers(min_value=1, max_value=10**15))
def test_a_version_in_the_future_is_refused(ahead: int) -> None:
    with pytest.raises(errors.Gone):
        ChangeHistory(5, floor=1000).since("pods", 1000 + ahead)


def test_large_objects_are_forgotten_first_when_they_exceed_the_bytes_kept() -> None:
    history = ChangeHistory(100, 1000, most_bytes=2500)
    for number in range(1, 6):
        obj = versioned({"metadata": {"name": "a"}, "text": "x" * 1000}, 1000 + number)
        history.append(ObjectChange(1000 + number, "pods", ObjectKey("", "a"), None, ObjectVersion(obj)))
    assert [change.version for change in history.since("pods", 1003)] == [1004, 1005]
    with pytest.raises(errors.Gone):
        history.since("pods", 1002)
    larger = ObjectVersion(versioned({"metadata": {"name": "a"}, "text": "x" * 5000}, 1006))
    history.append(ObjectChange(1006, "pods", ObjectKey("", "a"), None, larger))
    assert [change.version for change in history.since("pods", 1005)] == [1006]
