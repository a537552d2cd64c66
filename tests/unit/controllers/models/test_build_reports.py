"""The report of a built image, which the API may not take."""

import dataclasses
import errno
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import orjson
import pytest

from serving import errors, job_kinds
from serving.controllers.models.image_builder import ImageBuilder
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, ModelsSettings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import QUICK, running, until

NS = "default"
SETTINGS = dataclasses.replace(
    DEFAULTS,
    controllers=dataclasses.replace(
        QUICK, build_attempts=3, build_backoff_base_seconds=0.01, build_backoff_cap_seconds=0.01
    ),
    models=ModelsSettings(capture="local"),
)
AWAY = errors.Unavailable("away")
REFUSED = errors.Forbidden(403, "Forbidden", "modelversions/status cannot be patched")
FAILING = errors.Internal(500, "InternalError", "etcdserver: leader changed")
TOO_LARGE = errors.Internal(500, "InternalError", "etcdserver: request is too large")


class Machine:
    """An API that fails reports of a ready version, and the controller of versions."""

    def __init__(self, root: Path, failures: Iterator[Exception]) -> None:
        self.api, self.data = FakeKube(), DataDir(root / "data")
        self.builds = 0
        self._failures = failures
        files = root / "files"
        files.mkdir()
        (files / "model.joblib").write_text("weights")
        self.api.add(kinds.MODEL, {"metadata": {"name": "digits", "namespace": NS}, "spec": {}})
        spec = {"modelName": "digits", "source": {"path": str(files)}}
        self.api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})

    def spy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the builds, and fail reports."""
        build, apply = ImageBuilder.build, FakeKube.apply_status

        async def counted(builder: ImageBuilder, *given: Any, **named: Any) -> Object:
            self.builds += 1
            return await build(builder, *given, **named)

        async def failing(
            kube: FakeKube, kind: kinds.Kind, obj: Object, status: Object, **named: Any
        ) -> Object:
            if status.get("phase") == "Ready" and (failure := next(self._failures, None)) is not None:
                raise failure
            return await apply(kube, kind, obj, status, **named)

        monkeypatch.setattr(ImageBuilder, "build", counted)
        monkeypatch.setattr(FakeKube, "apply_status", failing)

    async def finished(self) -> Object:
        """Return the status of the version once it is Ready or Failed."""
        async with self.controlled():
            return self.status()

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Run the controller until the version is Ready or Failed, and during the block."""
        watches = Watches(self.api.client("watches"))
        jobs = TrainingJobs(watches, job_kinds.shipped())
        kube = self.api.client("modelversion")
        controller = ModelVersionController(kube, SETTINGS, self.data, watches, jobs)
        async with running(controller.run(), watches.run()):
            await until(lambda: self.status().get("phase") in ("Ready", "Failed"))
            await until(lambda: not controller._busy and not controller._built)
            yield

    def status(self) -> Object:
        [version] = self.api.find(kinds.MODEL_VERSION)
        return dict(version.get("status") or {})


@pytest.mark.parametrize(
    ("failures", "phase", "reason", "attempts"),
    [
        ([AWAY, FAILING, AWAY], "Ready", "Built", 0),
        ([REFUSED, AWAY, REFUSED], "Ready", "Built", 2),
        (repeat(REFUSED), "Failed", "StatusRefused", 3),
        (repeat(TOO_LARGE), "Failed", "TooManyFiles", 0),
    ],
    ids=["away", "refused", "refused for good", "too large"],
)
async def test_an_image_is_built_once_when_its_report_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: Sequence[Exception],
    phase: str,
    reason: str,
    attempts: int,
) -> None:
    machine = Machine(tmp_path, chain(failures))
    machine.spy(monkeypatch)
    status = await machine.finished()
    ready = conditions.find(status["conditions"], "Ready") or {}
    assert (status["phase"], ready["reason"], status["attempts"]) == (phase, reason, attempts)
    assert machine.builds == 1
    assert bool(ModelStore(machine.data.models).images()) == (phase == "Ready")


async def test_attempts_of_a_version_count_when_the_model_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    machine = Machine(tmp_path, iter(()))
    monkeypatch.setattr(ModelStore, "pin", failing)
    status = await machine.finished()
    ready = conditions.find(status["conditions"], "Ready") or {}
    assert (status["phase"], ready["reason"], status["attempts"]) == ("Failed", "StoreFailed", 3)
    assert os.strerror(errno.EIO) in ready["message"]
    logged = [record for record in caplog.records if record.name == disk.__name__]
    assert len(logged) == 3
    assert all(record.levelno == logging.ERROR and record.exc_info for record in logged)


@pytest.mark.parametrize(
    "edit", [{"phase": "Pending"}, {"phase": "Failed"}, {}], ids=["unfinished", "failed", "same phase"]
)
async def test_phase_and_conditions_of_a_built_version_are_replaced_when_others_have_changed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Object
) -> None:
    machine = Machine(tmp_path, iter(()))
    machine.spy(monkeypatch)
    machine.api.add(kinds.NAMESPACE, {"metadata": {"name": NS}})  # without it no policy is known
    async with machine.controlled():
        before = machine.status()
        (tmp_path / "files" / "model.joblib").unlink()
        ready = {**before["conditions"][0], "status": "False", "reason": "Mine"}
        edit = {**edit, "conditions": [ready, {**ready, "type": "Fake"}]}
        user = machine.api.client("user")
        await user.patch(kinds.MODEL_VERSION, NS, "v1", {"status": edit}, subresource="status")

        def without_times() -> Object:
            status = machine.status()
            times = [condition.pop("lastTransitionTime") for condition in status["conditions"]]
            assert times
            return status

        expected = {**before, "conditions": [dict(before["conditions"][0])]}
        del expected["conditions"][0]["lastTransitionTime"]
        await until(lambda: without_times() == expected)
        assert machine.builds == 1


async def test_managed_fields_do_not_grow_with_the_files_of_a_version(tmp_path: Path) -> None:
    machine = Machine(tmp_path, iter(()))
    files = [{"path": f"{number}.bin", "digest": "sha256:0", "size": 1} for number in range(1000)]
    contents = {"containsCode": True, "files": [{"path": f["path"], "format": "Pickle"} for f in files]}
    [version] = machine.api.find(kinds.MODEL_VERSION)
    await machine.api.apply_status(kinds.MODEL_VERSION, version, {"files": files, "contents": contents})
    [stored] = machine.api.find(kinds.MODEL_VERSION)
    assert len(stored["status"]["files"]) == len(stored["status"]["contents"]["files"]) == 1000
    assert len(orjson.dumps(stored["metadata"]["managedFields"])) < 2000
