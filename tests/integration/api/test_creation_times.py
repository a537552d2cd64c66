"""The creation times of objects on a machine whose clock is set back."""

import datetime as dt
from pathlib import Path

import pytest

from serving import clock
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.embedded.apiserver.writes.write_path import WriteOptions
from serving.objects import Object
from serving.planning.models import model, retention
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TOMORROW = NOW + dt.timedelta(days=1)


class Machine:
    """The writes of an API server whose clock a test sets."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = root / "db"
        self.time = NOW
        monkeypatch.setattr(clock, "now", lambda: self.time)
        self.start()

    def start(self) -> None:
        self.store = ObjectStore(Database(self._file, epoch=100, history=50), STORED_KINDS)
        self._writer = ObjectWriter(self.store)

    async def restart(self) -> None:
        await self.store.close()
        self.start()

    async def create(self, name: str, at: dt.datetime, *, dry_run: bool = False) -> Object:
        """Create a ModelVersion; return it as ready."""
        spec = {"modelName": "digits", "source": {"path": "/files"}}
        created = await self._create(kinds.MODEL_VERSION, name, spec, at, dry_run=dry_run)
        return {**created, "status": {"phase": "Ready", "image": "image"}}

    async def create_model(self, name: str, at: dt.datetime) -> Object:
        return await self._create(kinds.MODEL, name, {}, at)

    async def _create(
        self, kind: Kind, name: str, spec: Object, at: dt.datetime, *, dry_run: bool = False
    ) -> Object:
        self.time = at
        await self._writer.start()
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        options = WriteOptions("test", dry_run=dry_run)
        return (await self._writer.create(kind, "default", body, options)).object


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("restarts", [False, True])
async def test_version_is_the_newest_of_its_model_when_the_clock_was_set_back_before(
    machine: Machine, *, restarts: bool
) -> None:
    names = ("v6", "v5", "v4", "v3", "v2", "v1")
    versions = [await machine.create(name, TOMORROW) for name in names[:3]]
    if restarts:
        await machine.restart()
    for name in names[3:]:
        versions.append(await machine.create(name, NOW))
        assert model.status({"metadata": {}}, versions, "")["latestVersion"]["name"] == name
        assert name not in [v["metadata"]["name"] for v in retention.surplus(versions, 3, [])]
    await machine.store.close()


async def test_creation_time_is_that_of_the_clock_when_it_has_caught_up(machine: Machine) -> None:
    await machine.create("v1", TOMORROW)
    await machine.create("v2", TOMORROW + dt.timedelta(days=1), dry_run=True)
    later = TOMORROW + dt.timedelta(hours=1)
    created = await machine.create("v3", later)
    assert created["metadata"]["creationTimestamp"] == clock.rfc3339(later)
    await machine.store.close()


async def test_other_objects_have_the_time_of_the_clock_when_it_was_set_back(machine: Machine) -> None:
    await machine.create_model("first", TOMORROW)
    created = await machine.create_model("second", NOW)
    assert created["metadata"]["creationTimestamp"] == clock.rfc3339(NOW)
    await machine.store.close()
