"""Takes the steps that `garbage` decides on: keeps who owns whom, and looks again around every change."""

import asyncio
import logging
from collections.abc import Iterator

from serving import clock, errors
from serving.embedded.apiserver.storage import garbage
from serving.embedded.apiserver.storage.history import Change, Entry, Key
from serving.embedded.apiserver.storage.store import PendingWrite, identifier
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.embedded.apiserver.writes.write_path import WriteOptions
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.settings import ApiSettings

log = logging.getLogger(__name__)

Place = tuple[str, Key]
_KINDS = {identifier(kind): kind for kind in kinds.ALL}
_OPTIONS = WriteOptions("slipway-garbage-collector")
_SLICE = 200
"""Objects looked at before requests get their turn."""


class Collector:
    """One task; lives on the store's event loop."""

    def __init__(self, writer: ObjectWriter, settings: ApiSettings) -> None:
        """Index what is there and follow what changes."""
        self._writer, self._store, self._settings = writer, writer.store, settings
        self._places: dict[str, Place] = {}
        self._owned: dict[str, dict[Place, None]] = {}
        self._going: set[str] = set()
        self._queue: dict[Place, None] = {}
        self._woken = asyncio.Event()
        for kind in kinds.ALL:
            for key, entry in self._store.objects(kind).items():
                self._index((identifier(kind), key), None, entry)
                self._queue[identifier(kind), key] = None
        self._woken.set()
        self._store.on_change(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        sweep = clock.monotonic()
        while True:
            if clock.monotonic() >= sweep:
                sweep = clock.monotonic() + self._settings.sweep_seconds
                await self._take(self._old_events())
            try:
                async with asyncio.timeout(max(0.0, sweep - clock.monotonic())):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()
            while self._queue:
                batch = [place for place, _ in zip(self._queue, range(_SLICE), strict=False)]
                for place in batch:
                    del self._queue[place]
                await self._take(step for place in batch for step in self._steps(place))

    def _changed(self, change: Change) -> None:
        place = (change.kind, change.key)
        self._index(place, change.before, change.after)
        around = change.after or change.before
        assert around is not None
        meta = around.object["metadata"]
        if change.after is None:
            self._look(*self._owned.get(meta["uid"], ()))
        elif "ownerReferences" in meta or "deletionTimestamp" in meta:
            self._look(place)
        for ref in garbage.references(around.object) + (
            garbage.references(change.before.object) if change.before else []
        ):
            owner = self._places.get(ref["uid"])
            entry = self._entry(owner) if owner else None
            if owner and entry and garbage.deleting(entry.object):
                self._look(owner)
        if change.after is None and change.key.namespace in self._going:
            self._look((identifier(kinds.NAMESPACE), Key("", change.key.namespace)))

    def _look(self, *places: Place) -> None:
        for place in places:
            self._queue[place] = None
        if places:
            self._woken.set()

    def _index(self, place: Place, before: Entry | None, after: Entry | None) -> None:
        if before is not None:
            self._places.pop(before.object["metadata"]["uid"], None)
            for ref in garbage.references(before.object):
                owned = self._owned.get(ref["uid"], {})
                owned.pop(place, None)
                if not owned:
                    self._owned.pop(ref["uid"], None)
        if after is not None:
            self._places[after.object["metadata"]["uid"]] = place
            for ref in garbage.references(after.object):
                self._owned.setdefault(ref["uid"], {})[place] = None
        if place[0] == identifier(kinds.NAMESPACE):
            name = place[1].name
            (self._going.add if after and garbage.deleting(after.object) else self._going.discard)(name)

    def _entry(self, place: Place) -> Entry | None:
        return self._store.newest(_KINDS[place[0]], place[1])

    def _alive(self, uid: str) -> Object | None:
        place = self._places.get(uid)
        entry = None if place is None else self._entry(place)
        return entry.object if entry is not None and entry.object["metadata"]["uid"] == uid else None

    def _steps(self, place: Place) -> list[garbage.Step]:
        entry = self._entry(place)
        if entry is None:
            return []
        obj = entry.object
        if place[0] == identifier(kinds.NAMESPACE):
            return garbage.namespace(obj, self._content(place[1].name))
        dependents = [self._entry(child) for child in self._owned.get(obj["metadata"]["uid"], ())]
        there = [child.object for child in dependents if child is not None]
        return garbage.owner(obj, there) + garbage.dependent(obj, self._alive)

    def _content(self, namespace: str) -> Iterator[Object]:
        for kind in kinds.ALL:
            if kind.namespaced:
                for key in self._store.keys(kind, namespace):
                    entry = self._store.newest(kind, key)
                    if entry is not None:
                        yield entry.object

    def _old_events(self) -> Iterator[garbage.Step]:
        now = clock.now()
        for entry in list(self._store.objects(kinds.EVENT_V1).values()):
            if garbage.expired(entry.object, now, self._settings.event_ttl_seconds):
                yield garbage.Delete(entry.object)

    async def _take(self, steps: Iterator[garbage.Step]) -> None:
        """Take the steps, and look again at what could not be written."""
        pending: list[tuple[Place, PendingWrite]] = []
        for step in steps:
            kind = kinds.of(step.target["apiVersion"], step.target["kind"])
            assert kind is not None
            meta = step.target["metadata"]
            key = Key(meta.get("namespace", ""), meta["name"])
            write = self._write(kind, key, step)
            if write is not None:
                pending.append(((identifier(kind), key), write))
        for place, write in pending:
            try:
                await write.committed()
            except errors.ApiError as error:
                log.warning("%s %s could not be collected, it is tried again: %s", *place, error)
                await asyncio.sleep(self._settings.collect_retry_seconds)
                self._look(place)

    def _write(self, kind: Kind, key: Key, step: garbage.Step) -> PendingWrite | None:
        entry = self._store.newest(kind, key)
        if entry is None or entry.object is not step.target:
            if entry is not None:
                self._look((identifier(kind), key))
            return None
        if isinstance(step, garbage.Remove):
            return self._store.submit(kind, key, None)
        if isinstance(step, garbage.Rewrite):
            return self._store.submit(kind, key, step.after)
        options = {"propagationPolicy": step.policy} if step.policy != "Background" else {}
        write = self._writer.begin_delete(kind, key, entry, options, _OPTIONS)
        return write if isinstance(write, PendingWrite) else None
