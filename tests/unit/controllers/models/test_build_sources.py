"""The directories that the image of a ModelVersion is built from, and those that it is not."""

import errno
import os
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from serving import errors, job_kinds
from serving.controllers.models.image_builder import ImageBuilder
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.objects import Object
from serving.planning.models.job_kind import TrainingJob
from serving.resources import kinds
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube

STRANGER = 1_999_999_999


class Machine:
    """A data directory with the record of one Pod, whose output is a volume of its Job."""

    def __init__(self, root: Path) -> None:
        self.data = DataDir(root / "data")
        self.kube = FakeKube()
        self.builder = ImageBuilder(self.kube, ModelStore(self.data.models), self.data, DEFAULTS)
        self.pod: Object = {}

    async def built(self, source: Object, job: TrainingJob | None = None) -> list[str]:
        """Return the paths in the image of a version."""
        meta = {"namespace": "default", "name": "v1", "uid": "u1"}
        version = {"metadata": meta, "spec": {"modelName": "m", "source": source}}
        status = await self.builder.build(version, job, {"spec": {}}, {}, lambda _: None)
        return [file["path"] for file in status["files"]]

    def finished_job(self, volume: Object, user: int | None) -> TrainingJob:
        """Return a Job whose Pod has succeeded as this user."""
        container = {
            "name": "train",
            "image": "i",
            "env": [{"name": "SLIPWAY_OUTPUT_DIR", "value": "/mnt/o"}],
            "volumeMounts": [{"name": "out", "mountPath": "/mnt/o"}],
        }
        spec = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "out", **volume}]}
        meta: Object = {"namespace": "default", "name": "train"}
        job = self.kube.add(kinds.JOB, {"metadata": meta, "spec": {"template": {"spec": spec}}})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
        labels = {"batch.kubernetes.io/job-name": "train"}
        meta = {"namespace": "default", "name": "p", "ownerReferences": [owner], "labels": labels}
        status = {"phase": "Succeeded"}
        self.pod = self.kube.add(kinds.POD, {"metadata": meta, "spec": spec, "status": status})
        record = self.data.pod_record(self.pod["metadata"]["uid"])
        record.parent.mkdir(parents=True)
        record.write_bytes(orjson.dumps({"ip": "127.77.0.1", "user": user}))
        row = job_kinds.shipped().find("batch", "Job")
        assert row is not None
        return TrainingJob(row, job)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A directory that only the user of `up` may enter."""
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    (directory / "id_rsa").write_text("secret")
    return directory


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_hand_off_is_refused_when_the_pod_could_not_read_the_files(
    machine: Machine, private: Path
) -> None:
    job = machine.finished_job({"hostPath": {"path": str(private)}}, STRANGER)
    with pytest.raises(errors.Permanent, match=f"{private}: must be readable for the Pod's user") as caught:
        await machine.built({}, job)
    assert caught.value.reason == "InvalidOutput"
    machine.data.pod_record(machine.pod["metadata"]["uid"]).unlink()
    with pytest.raises(errors.Permanent, match="must be readable"):
        await machine.built({}, job)


@pytest.mark.parametrize("user", [STRANGER, None])
async def test_hand_off_is_built_when_the_files_are_those_of_the_pods_user(
    user: int | None, machine: Machine
) -> None:
    job = machine.finished_job({"emptyDir": {}}, user)
    volume = machine.data.pod_volume(machine.pod["metadata"]["uid"], "out")
    volume.mkdir(parents=True, mode=0o700)
    (volume / "model.joblib").write_text("weights")
    (volume / "model.joblib").chmod(0o600)
    if user is not None and os.geteuid() == 0:
        for path in (volume, volume / "model.joblib"):
            os.chown(path, user, user)
    assert await machine.built({}, job) == ["model.joblib"]


async def test_hand_off_is_refused_when_its_host_path_leads_to_the_data_directory(
    machine: Machine, tmp_path: Path
) -> None:
    machine.data.tls.mkdir(parents=True, mode=0o755)
    (machine.data.tls / "ca.key").write_text("secret")
    (tmp_path / "link").symlink_to(machine.data.tls)
    job = machine.finished_job({"hostPath": {"path": str(tmp_path / "link")}}, None)
    with pytest.raises(errors.Permanent, match="must be apart from the data directory"):
        await machine.built({}, job)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("link", ["out", "out/below"])
async def test_hand_off_is_refused_when_the_pod_replaced_its_host_path_by_a_link(
    machine: Machine, private: Path, tmp_path: Path, link: str
) -> None:
    readable = private / "below" / "below"
    readable.mkdir(parents=True)
    (readable / "leak.json").write_text("secret")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "out").symlink_to(private / "below")
    for path in (shared, shared / "out"):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    job = machine.finished_job({"hostPath": {"path": str(shared / link)}}, STRANGER)
    expected = f"{shared / link}: out is a symbolic link that another user may change"
    with pytest.raises(errors.Permanent, match=expected) as caught:
        await machine.built({}, job)
    assert caught.value.reason == "InvalidOutput"


@pytest.mark.parametrize("place", ["data/tls", "link/tls", "", "data/imports/default/v2"])
@pytest.mark.parametrize("form", ["path", "uri"])
async def test_version_is_refused_when_its_source_leads_to_the_data_directory(
    place: str, form: str, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(machine.data.root)
    for directory in (machine.data.tls, machine.data.imports / "default" / "v2"):
        directory.mkdir(parents=True)
        (directory / "ca.key").write_text("secret")
    source = f"file://{tmp_path / place}" if form == "uri" else str(tmp_path / place)
    with pytest.raises(errors.Permanent, match="must be apart from the data directory") as caught:
        await machine.built({form: source})
    assert caught.value.reason == "InvalidOutput"


async def test_version_is_built_when_its_source_is_private_or_its_own_copy_of_an_import(
    machine: Machine, private: Path
) -> None:
    assert await machine.built({"path": str(private)}) == ["id_rsa"]
    copy = machine.data.imports / "default" / "v1"
    copy.mkdir(parents=True, mode=0o700)
    (copy / "model.joblib").write_text("weights")
    assert await machine.built({"path": str(copy)}) == ["model.joblib"]


@pytest.mark.parametrize("name", ["out", "data", "model.joblib"])
async def test_version_is_retried_when_the_controllers_may_not_read_a_file_of_its_source(
    name: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "out"
    (source / "data").mkdir(parents=True)
    (source / "data" / "model.joblib").write_text("weights")
    original = os.open

    def forbidding(path: Any, *arguments: Any, **options: Any) -> int:
        if path == name:
            raise PermissionError(13, "Permission denied", path)
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", forbidding)
    rule = f"{source}: must be readable for user {os.geteuid()} of the controllers"
    rule += f", got {name}: Permission denied"
    with pytest.raises(errors.Temporary, match=re.escape(rule)) as caught:
        await machine.built({"path": str(source)})
    assert caught.value.reason == "OutputNotReadable"


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
async def test_version_is_retried_when_its_source_cannot_be_read(
    error: int, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "out"
    source.mkdir()
    (source / "model.joblib").write_text("weights")
    original = os.open

    def failing(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "model.joblib":
            raise OSError(error, os.strerror(error), path)
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(errors.Temporary, match=re.escape(os.strerror(error))) as caught:
        await machine.built({"path": str(source)})
    assert caught.value.reason == "OutputNotReadable"
