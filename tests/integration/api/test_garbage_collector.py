"""The garbage collector on a store, where a write fails."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage import garbage, garbage_collector
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.garbage_collector import GarbageCollector
from serving.embedded.apiserver.storage.history import ObjectChange, ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.embedded.apiserver.writes.write_path import WriteOptions
from serving.objects import Object
from serving.resources import kinds
from serving.settings import ApiSettings
from tests.objects.config_maps import config_map
from tests.objects.stored_kinds import STORED_KINDS

OPTIONS = WriteOptions("tester")


class Collection:
    """A collector at work, and what the tests do beside it."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, epoch=100, history=50)
        self.store = ObjectStore(self.database, STORED_KINDS)
        self.writer = ObjectWriter(self.store)
        self._changed = asyncio.Event()
        self.store.on_change(lambda _: self._changed.set())

    async def create(self, name: str, owner: Object | None = None, namespace: str = "default") -> Object:
        body = config_map(name)
        if owner is not None:
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True}
            reference |= {field: owner["metadata"][field] for field in ("name", "uid")}
            body["metadata"]["ownerReferences"] = [reference]
        return (await self.writer.create(kinds.CONFIG_MAP, namespace, body, OPTIONS)).object

    async def create_namespace(self, name: str) -> None:
        body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.writer.create(kinds.NAMESPACE, None, body, OPTIONS)

    async def delete(self, name: str, policy: str = "Background") -> None:
        key = ObjectKey("default", name)
        await self.writer.delete(kinds.CONFIG_MAP, key, {"propagationPolicy": policy}, OPTIONS)

    async def gone(self, kind: kinds.Kind, key: ObjectKey) -> None:
        """Return when the object is gone."""
        async with asyncio.timeout(10):
            while self.store.get(kind, key) is not None:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def collection(tmp_path: Path) -> AsyncIterator[Collection]:
    collection = Collection(tmp_path / "db")
    await collection.writer.start()
    collecting = asyncio.create_task(GarbageCollector(collection.writer, ApiSettings()).run())
    yield collection
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    await collection.store.close()


async def test_others_are_collected_when_a_step_for_one_object_fails(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin_delete = collection.writer.begin_delete

    def failing(kind: kinds.Kind, key: ObjectKey, *rest: Any) -> Any:
        if key.name == "bad":
            raise OverflowError("date value out of range")
        return begin_delete(kind, key, *rest)

    owner = await collection.create("owner")
    for name in ("bad", "good"):
        await collection.create(name, owner)
    monkeypatch.setattr(collection.writer, "begin_delete", failing)
    await collection.store.submit(kinds.CONFIG_MAP, ObjectKey("default", "owner"), None).committed()
    await collection.gone(kinds.CONFIG_MAP, ObjectKey("default", "good"))
    assert collection.store.get(kinds.CONFIG_MAP, ObjectKey("default", "bad")) is not None
    assert "date value out of range" in caplog.text


async def test_others_are_collected_when_the_steps_of_one_object_cannot_be_decided(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps_for_dependent = garbage.steps_for_dependent

    def failing(stored_kinds: StoredKinds, obj: Object, *rest: Any) -> Any:
        if obj["metadata"]["name"] == "bad":
            raise OverflowError("date value out of range")
        return steps_for_dependent(stored_kinds, obj, *rest)

    owner = await collection.create("owner")
    for name in ("bad", "good"):
        await collection.create(name, owner)
    monkeypatch.setattr(garbage, "steps_for_dependent", failing)
    await collection.store.submit(kinds.CONFIG_MAP, ObjectKey("default", "owner"), None).committed()
    await collection.gone(kinds.CONFIG_MAP, ObjectKey("default", "good"))
    assert "date value out of range" in caplog.text


async def test_requests_are_served_between_batches_when_no_object_has_a_step(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await collection.create(f"map-{number}")
    monkeypatch.setattr(garbage_collector, "_BATCH", 1)
    collector = GarbageCollector(collection.writer, ApiSettings())
    collecting = asyncio.create_task(collector.run())
    await asyncio.sleep(0)
    assert collector._queue
    collecting.cancel()


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_a_deletion_is_finished_when_a_dependent_could_not_be_written(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    owner = await collection.create("owner")
    await collection.create("child", owner)
    refused = _refuse_first(collection, monkeypatch, "child")
    await collection.delete("owner", policy)
    await collection.gone(kinds.CONFIG_MAP, ObjectKey("default", "owner"))
    assert refused == ["child"]
    child = collection.store.get(kinds.CONFIG_MAP, ObjectKey("default", "child"))
    assert (child is None) == (policy == "Foreground")


async def test_a_namespace_is_deleted_when_its_content_could_not_be_written(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await collection.create_namespace("team")
    await collection.create("content", namespace="team")
    refused = _refuse_first(collection, monkeypatch, "content")
    await collection.writer.delete(kinds.NAMESPACE, ObjectKey("", "team"), {}, OPTIONS)
    await collection.gone(kinds.NAMESPACE, ObjectKey("", "team"))
    assert refused == ["content"]


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_a_namespace_and_its_content_are_deleted_when_the_policy_has_a_finalizer(
    collection: Collection, policy: str
) -> None:
    await collection.create_namespace("team")
    await collection.create("content", namespace="team")
    options = {"propagationPolicy": policy}
    await collection.writer.delete(kinds.NAMESPACE, ObjectKey("", "team"), options, OPTIONS)
    await collection.gone(kinds.NAMESPACE, ObjectKey("", "team"))
    assert collection.store.get(kinds.CONFIG_MAP, ObjectKey("team", "content")) is None


async def test_the_collector_pauses_once_when_the_disk_refuses_several_writes(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await collection.create_namespace("team")
    for number in range(5):
        await collection.create(f"content-{number}", namespace="team")
    refused = _refuse_first(collection, monkeypatch, "content-0")
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(garbage_collector, "_RETRY_SECONDS", 1.0)
    monkeypatch.setattr(asyncio, "sleep", counted)
    await collection.writer.delete(kinds.NAMESPACE, ObjectKey("", "team"), {}, OPTIONS)
    await collection.gone(kinds.NAMESPACE, ObjectKey("", "team"))
    assert refused == ["content-0"]
    assert pauses == [1.0]
    assert caplog.text.count("could not be collected") == 1


def _refuse_first(collection: Collection, monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Let the disk be full for the next write of an object; return the names of refused objects."""
    stage = collection.database.stage
    refused: list[str] = []

    def full(changes: Sequence[ObjectChange]) -> None:
        if not refused and name in [change.key.name for change in changes]:
            refused.append(name)
            raise sqlite3.OperationalError("database or disk is full")
        stage(changes)

    monkeypatch.setattr(collection.database, "stage", full)
    monkeypatch.setattr(garbage_collector, "_RETRY_SECONDS", 0.0)
    return refused
