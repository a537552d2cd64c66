"""Takes the steps that `garbage` decides, for the objects around each change and for expired Events."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from serving import clock, errors
from serving.embedded.apiserver.storage import garbage
from serving.embedded.apiserver.storage.history import ObjectChange, ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import PendingWrite, identifier
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.embedded.apiserver.writes.write_path import WriteOptions
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.settings import ApiSettings

log = logging.getLogger(__name__)

ObjectId = tuple[str, ObjectKey]
"""Identifier of the kind (`store.identifier`), and key."""
_OPTIONS = WriteOptions("slipway-garbage-collector")
_BATCH = 200
"""Objects checked before the event loop serves requests again."""
_SWEEP_SECONDS = 300.0
"""Between searches for expired Events, which live for an hour by default; a search takes 0.15 s with a
thousand Inferences."""
_RETRY_SECONDS = 1.0
"""Pause after the disk refused a write."""


class _PendingStep(NamedTuple):
    """A step whose write is not committed yet."""

    source: ObjectId
    """The object whose rules the step follows."""
    target: ObjectId
    write: PendingWrite


class GarbageCollector:
    """Collects garbage in a task on the store's event loop."""

    def __init__(self, writer: ObjectWriter, settings: ApiSettings) -> None:
        """Index the stored objects and follow their changes."""
        self._writer, self._store, self._settings = writer, writer.store, settings
        self._kinds = {identifier(kind): kind for kind in self._store.kinds.all}
        self._ids_by_uid: dict[str, ObjectId] = {}
        self._dependents: dict[str, dict[ObjectId, None]] = {}
        """Uid of an owner → the objects with a reference to it, as the keys, in order."""
        self._terminating: set[str] = set()
        """Names of the namespaces that are being deleted."""
        self._queue: dict[ObjectId, None] = {}
        """The objects to check, as the keys, in order."""
        self._wake = asyncio.Event()
        for kind in self._store.kinds.all:
            for key, entry in self._store.objects(kind).items():
                self._index((identifier(kind), key), None, entry)
                self._queue[identifier(kind), key] = None
        self._wake.set()
        self._store.on_change(self._changed)

    async def run(self) -> None:
        """Collect until cancelled."""
        sweep = clock.monotonic()
        while True:
            if clock.monotonic() >= sweep:
                sweep = clock.monotonic() + _SWEEP_SECONDS
                await self._take_steps(self._expired_events())
            try:
                async with asyncio.timeout(max(0.0, sweep - clock.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()
            while self._queue:
                batch = [object_id for object_id, _ in zip(self._queue, range(_BATCH), strict=False)]
                for object_id in batch:
                    del self._queue[object_id]
                await self._take_steps(self._steps_of(batch))
                await asyncio.sleep(0)  # without a write nothing above suspends

    def _changed(self, change: ObjectChange) -> None:
        """Index a committed change, and enqueue the objects for which it may have steps."""
        object_id = (change.kind, change.key)
        latest = change.after or change.before
        assert latest is not None
        before = garbage.references(change.before.object) if change.before else []
        after = garbage.references(latest.object)
        is_update = change.before is not None and change.after is not None
        if is_update and before == after and not is_deleting(latest.object):
            return  # most writes: neither the references nor the deletion changed
        self._index(object_id, change.before, change.after)
        if change.after is None:
            # Their owner is gone.
            self._enqueue(*self._dependents.get(latest.object["metadata"]["uid"], ()))
        elif after or is_deleting(latest.object):
            self._enqueue(object_id)
        for ref in after + before:
            # The deletion of an owner may wait for this dependent.
            owner = self._ids_by_uid.get(ref["uid"])
            entry = self._entry(owner) if owner else None
            if owner and entry and is_deleting(entry.object):
                self._enqueue(owner)
        if change.after is None and change.key.namespace in self._terminating:
            self._enqueue((identifier(kinds.NAMESPACE), ObjectKey("", change.key.namespace)))

    def _enqueue(self, *object_ids: ObjectId) -> None:
        for object_id in object_ids:
            self._queue[object_id] = None
        if object_ids:
            self._wake.set()

    def _index(self, object_id: ObjectId, before: ObjectVersion | None, after: ObjectVersion | None) -> None:
        """Replace an object's entries in the indexes; None is an object that does not exist."""
        if before is not None:
            self._ids_by_uid.pop(before.object["metadata"]["uid"], None)
            for ref in garbage.references(before.object):
                owned = self._dependents.get(ref["uid"], {})
                owned.pop(object_id, None)
                if not owned:
                    self._dependents.pop(ref["uid"], None)
        if after is not None:
            self._ids_by_uid[after.object["metadata"]["uid"]] = object_id
            for ref in garbage.references(after.object):
                self._dependents.setdefault(ref["uid"], {})[object_id] = None
        if object_id[0] == identifier(kinds.NAMESPACE):
            name = object_id[1].name
            if after is not None and is_deleting(after.object):
                self._terminating.add(name)
            else:
                self._terminating.discard(name)

    def _entry(self, object_id: ObjectId) -> ObjectVersion | None:
        return self._store.newest(self._kinds[object_id[0]], object_id[1])

    def _find_by_uid(self, uid: str) -> Object | None:
        object_id = self._ids_by_uid.get(uid)
        entry = None if object_id is None else self._entry(object_id)
        return entry.object if entry is not None and entry.object["metadata"]["uid"] == uid else None

    def _steps_of_one(self, object_id: ObjectId) -> list[garbage.Step]:
        entry = self._entry(object_id)
        if entry is None:
            return []
        obj = entry.object
        children = [self._entry(child) for child in self._dependents.get(obj["metadata"]["uid"], ())]
        dependents = [child.object for child in children if child is not None]
        if object_id[0] == identifier(kinds.NAMESPACE):
            return garbage.steps_for_namespace(obj, self._content(object_id[1].name), dependents)
        steps = garbage.steps_for_owner(obj, dependents)
        return steps + garbage.steps_for_dependent(self._store.kinds, obj, self._find_by_uid)

    def _content(self, namespace: str) -> Iterator[Object]:
        """Yield the objects in a namespace, including pending writes."""
        for kind in self._store.kinds.all:
            if kind.namespaced:
                for key in self._store.keys(kind, namespace):
                    entry = self._store.newest(kind, key)
                    if entry is not None:
                        yield entry.object

    def _steps_of(self, object_ids: Iterable[ObjectId]) -> Iterator[tuple[ObjectId, garbage.Step]]:
        for object_id in object_ids:
            try:
                steps = self._steps_of_one(object_id)
            except Exception:  # as in `_take_steps`
                log.exception("%s %s is not collected before its next change", *object_id)
                continue
            for step in steps:
                yield object_id, step

    def _expired_events(self) -> Iterator[tuple[ObjectId, garbage.Step]]:
        now = clock.now()
        for key, entry in list(self._store.objects(kinds.EVENT_V1).items()):
            if garbage.expired(entry.object, now, self._settings.event_ttl_seconds):
                yield (identifier(kinds.EVENT_V1), key), garbage.Delete(entry.object)

    async def _take_steps(self, steps: Iterator[tuple[ObjectId, garbage.Step]]) -> None:
        """Take the steps; each comes with its source, the object whose rules it follows.

        After a step that failed, or whose target has changed since, source and target are checked again. To
        check the target alone is not enough: a step of its owner or namespace is not one of its own.
        """
        pending: list[_PendingStep] = []
        for source, step in steps:
            kind = self._store.kinds.of(step.target["apiVersion"], step.target["kind"])
            assert kind is not None
            metadata = step.target["metadata"]
            key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
            target = (identifier(kind), key)
            try:
                entry = self._store.newest(kind, key)
                if entry is None or entry.object is not step.target:
                    self._enqueue(source, target)
                    continue
                write = self._write(kind, key, entry, step)
            except Exception:  # a bug with one object must not end the server, now and at each start
                log.exception("%s %s is not collected before its next change", *target)
                continue
            if write is not None:
                pending.append(_PendingStep(source, target, write))
        refused: list[_PendingStep] = []
        for unfinished in pending:
            try:
                await unfinished.write.committed()
            except errors.ApiError as error:
                if not refused:  # the store refuses all pending writes together
                    log.warning("%s %s could not be collected, retrying: %s", *unfinished.target, error)
                refused.append(unfinished)
        if refused:
            await asyncio.sleep(_RETRY_SECONDS)
        for source, target, _ in refused:
            self._enqueue(source, target)

    def _write(
        self, kind: Kind, key: ObjectKey, entry: ObjectVersion, step: garbage.Step
    ) -> PendingWrite | None:
        """Submit the write of a step; None if the step, a deletion, changes nothing."""
        if isinstance(step, garbage.RemoveFromStore):
            return self._store.submit(kind, key, None)
        if isinstance(step, garbage.Rewrite):
            return self._store.submit(kind, key, step.after)
        options = {"propagationPolicy": step.policy} if step.policy != "Background" else {}
        write = self._writer.begin_delete(kind, key, entry, options, _OPTIONS)
        return write if isinstance(write, PendingWrite) else None
