"""`slipway model` against the real API, controllers, store and registry."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.cli.model import import_copies
from serving.data_dir import DataDir
from serving.images.documents import oci
from serving.images.documents.image import Blob
from serving.images.registry import Credentials, Reference, Registry, manifests, uploads
from serving.images.store.contents import StoreContents
from serving.resources import kinds
from tests.objects.models.foreign_models import RUN_ID, cache, run_directory
from tests.objects.models.model_images import ForeignImage, gzip_bomb
from tests.objects.models.signing_keys import key_pair
from tests.rig.command_line import Slipway, command_line
from tests.rig.control_plane.model_controllers import ModelLife
from tests.rig.servers.registry_server import RegistryServer

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def slipway(life: ModelLife, api_server: DataDir, capsys: pytest.CaptureFixture[str]) -> Slipway:
    """Run the command line in a thread, beside the controllers."""
    shutil.copy(api_server.kubeconfig, life.data.kubeconfig)
    return command_line(life.data.kubeconfig, life.namespace, capsys)


async def test_an_mlflow_run_is_imported_from_a_copy_and_not_changed(
    life: ModelLife, slipway: Slipway, tmp_path: Path
) -> None:
    run = run_directory(tmp_path)
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    code, out, err = await slipway("model", "import", str(run), "--model", "digits")
    name = f"digits-{RUN_ID[:12]}"
    assert code == 0, err
    assert out.startswith(
        f"modelversion.slipway.dev/{name} ready: slipway.local/{life.namespace}/digits@sha256:"
    )
    status = (await life.get(kinds.MODEL_VERSION, name))["status"]
    assert (status["framework"], status["metrics"]["accuracy"]) == ("sklearn", 0.97)
    assert status["lineage"]["sourceRevision"] == RUN_ID
    assert [f["path"] for f in status["files"]] == ["MLmodel", "conda.yaml", "model.pkl", "slipway.json"]
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == before
    assert list(life.data.imports.glob("*/*")) == []


async def test_a_hugging_face_cache_is_imported_without_its_links(
    life: ModelLife, slipway: Slipway, tmp_path: Path
) -> None:
    code, _, err = await slipway(
        "model", "import", str(cache(tmp_path)), "--model", "tiny", "--version", "t1"
    )
    assert code == 0, err
    status = (await life.get(kinds.MODEL_VERSION, "t1"))["status"]
    assert [f["path"] for f in status["files"]] == ["config.json", "model.safetensors", "slipway.json"]
    assert life.store.verify(status["digest"], deep=True)


async def test_an_import_leaves_the_copy_of_another_one_that_still_runs(
    life: ModelLife,
    slipway: Slipway,
    tmp_path: Path,
    files: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copyfile, copying, released = shutil.copyfile, threading.Event(), threading.Event()

    def slowly(source: Path, target: Path) -> None:
        copyfile(source, target)
        copying.set()
        released.wait(10)

    monkeypatch.setattr(shutil, "copyfile", slowly)
    first = asyncio.create_task(
        slipway("model", "import", str(cache(tmp_path)), "--model", "tiny", "--version", "t1")
    )
    await asyncio.to_thread(copying.wait, 10)
    second = await slipway("model", "import", files(), "--model", "digits", "--version", "v1")
    (copy,) = life.data.imports.glob("*/*")
    released.set()
    code, _, err = await first
    assert (code, second[0], copy.name) == (0, 0, "t1"), err
    assert list(life.data.imports.glob("*/*")) == []


async def test_a_copy_of_a_killed_import_is_removed_by_the_next_one(
    life: ModelLife, slipway: Slipway, files: Callable[..., str]
) -> None:
    os.close(import_copies.create(life.data.imports / life.namespace / "killed"))
    assert (await slipway("model", "import", files(), "--model", "digits", "--version", "v1"))[0] == 0
    assert list(life.data.imports.glob("*/*")) == []


async def test_an_import_is_refused_when_the_version_exists_or_the_directory_is_empty(
    life: ModelLife, slipway: Slipway, tmp_path: Path, files: Callable[..., str]
) -> None:
    path = files()
    assert (await slipway("model", "import", path, "--model", "digits", "--version", "v1"))[0] == 0
    code, _, err = await slipway("model", "import", path, "--model", "digits", "--version", "v1")
    assert (code, "already exists" in err) == (4, True)
    (tmp_path / "empty").mkdir()
    code, _, err = await slipway(
        "model", "import", str(tmp_path / "empty"), "--model", "digits", "--version", "v2"
    )
    assert (code, "EmptyOutput" in err) == (1, True)


async def test_an_import_is_refused_before_anything_is_copied_when_no_model_has_the_name(
    life: ModelLife, slipway: Slipway, tmp_path: Path
) -> None:
    run = run_directory(tmp_path)
    for name in ("my.model", "m" * 64):
        code, _, err = await slipway("model", "import", str(run), "--model", name, "--version", "v1")
        assert (code, "--model must be lowercase letters, digits and '-'" in err) == (2, True), err
        assert "copying" not in err


@pytest.mark.parametrize("name", ["v#1", "../v1", "V1", "v" * 254])
async def test_an_import_is_refused_before_anything_is_copied_when_no_version_has_the_name(
    name: str, life: ModelLife, slipway: Slipway, tmp_path: Path
) -> None:
    run = run_directory(tmp_path)
    code, _, err = await slipway("model", "import", str(run), "--model", "digits", "--version", name)
    assert (code, "--version must be lowercase letters, digits, '-' and '.'" in err) == (2, True), err
    assert not life.data.imports.exists()


async def test_a_copy_with_a_name_that_no_version_has_is_removed_by_the_next_import(
    life: ModelLife, slipway: Slipway, files: Callable[..., str]
) -> None:
    """An earlier release made such copies."""
    os.close(import_copies.create(life.data.imports / life.namespace / "v#1"))
    code, _, err = await slipway("model", "import", files(), "--model", "digits", "--version", "v1")
    assert code == 0, err
    assert list(life.data.imports.glob("*/*")) == []


async def test_a_version_is_listed_compared_verified_pushed_and_pulled(
    life: ModelLife, slipway: Slipway, registry: RegistryServer, files: Callable[..., str]
) -> None:
    for name, text in {"v1": "one", "v2": "two"}.items():
        await life.version(name, path=files(name, model=text, other="same"))
        await life.ready(name)
    _, out, _ = await slipway("model", "list", "--model", "digits")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "v1", "v2"]
    assert (await slipway("model", "list", "-o", "name"))[1].splitlines() == [
        "modelversion.slipway.dev/v1",
        "modelversion.slipway.dev/v2",
    ]
    assert "~  model.joblib" in (await slipway("model", "diff", "v1", "v2"))[1]
    code, out, _ = await slipway("model", "verify", "v1")
    assert (code, "2 files" in out, "the seal and all digests match" in out) == (0, True, True)

    image = f"{registry.host}/models/digits"
    code, out, err = await slipway("model", "push", "v1", image)
    digest = (await life.ready("v1"))["digest"]
    assert (code, out) == (0, f"pushed {image}@{digest} as v1\n"), err
    assert "were there" in err
    code, out, err = await slipway("model", "pull", f"{image}:v1", "--model", "copy")
    assert (code, out) == (0, f"modelversion.slipway.dev/copy-v1 ready: {image}@{digest}\n"), err


async def test_verify_prints_the_fingerprint_of_the_key_that_has_signed(
    life: ModelLife, slipway: Slipway, registry: RegistryServer, files: Callable[..., str], tmp_path: Path
) -> None:
    key, stranger = key_pair(), key_pair()
    (tmp_path / "cosign.pub").write_text(key.public)
    (tmp_path / "stranger.pub").write_text(stranger.public)
    await life.with_signing("digits", registry.host, key)
    await life.version("v1", path=files())
    await life.ready("v1")
    keys = ("--key", str(tmp_path / "stranger.pub"), "--key", str(tmp_path / "cosign.pub"))
    code, out, err = await slipway("model", "verify", "v1", *keys)
    assert (code, f"signed by {key.fingerprint} (2 trusted)" in out) == (0, True), err
    code, _, err = await slipway("model", "verify", "v1", *keys[:2])
    assert (code, "none of the" in err) == (1, True)


async def test_verify_reports_a_changed_file_of_the_store(
    life: ModelLife, slipway: Slipway, files: Callable[..., str]
) -> None:
    await life.version("v1", path=files())
    digest = (await life.ready("v1"))["digest"]
    file = life.store.tree(digest) / "models" / "model.joblib"
    file.chmod(0o644)
    file.write_text("changed")
    code, _, err = await slipway("model", "verify", "v1")
    assert (code, "model.joblib" in err) == (1, True)


async def test_a_push_without_the_store_is_refused_with_a_remedy(
    life: ModelLife,
    capsys: pytest.CaptureFixture[str],
    api_server: DataDir,
    tmp_path: Path,
    files: Callable[..., str],
) -> None:
    await life.version("v1", path=files())
    await life.ready("v1")
    elsewhere = tmp_path / "elsewhere" / "kubeconfig"
    elsewhere.parent.mkdir()
    shutil.copy(api_server.kubeconfig, elsewhere)
    slipway = command_line(elsewhere, life.namespace, capsys)
    code, _, err = await slipway("model", "push", "v1", "127.0.0.1:1/models/digits")
    assert (code, "run it on the machine" in err) == (1, True)


@pytest.mark.parametrize(
    "command", [("push", "v1", "127.0.0.1:1/models/digits"), ("verify", "v1")], ids=" ".join
)
async def test_a_store_of_another_user_is_reported(
    life: ModelLife,
    slipway: Slipway,
    files: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(life.data.models))

    await life.version("v1", path=files())
    await life.ready("v1")
    monkeypatch.setattr(StoreContents, "__init__", refuse)
    code, _, err = await slipway("model", *command)
    assert (code, "belongs to the user of `slipway up`" in err) == (1, True)


async def test_a_version_can_be_deleted_when_its_pull_failed(
    life: ModelLife, slipway: Slipway, registry: RegistryServer
) -> None:
    code, _, err = await slipway("model", "pull", f"{registry.host}/models/nothing:v1")
    assert (code, "ImageNotFound" in err) == (1, True)
    version: Any = await life.get(kinds.MODEL_VERSION, "nothing-v1")
    assert version["status"]["phase"] == "Failed"
    await life.delete(kinds.MODEL_VERSION, "nothing-v1")
    await life.gone(kinds.MODEL_VERSION, "nothing-v1")


async def test_import_pull_and_describe_say_which_files_have_code_and_who_has_signed(
    life: ModelLife, slipway: Slipway, registry: RegistryServer, files: Callable[..., str]
) -> None:
    name = "modelversion.slipway.dev/v1"
    code, _, err = await slipway("model", "import", files(), "--model", "digits", "--version", "v1")
    assert code == 0, err
    assert f"{name} contains code, which each replica runs: model.joblib (Pickle)" in err.splitlines()
    assert f"{name} not signed by a known key" in err.splitlines()
    _, out, _ = await slipway("describe", "mv", "v1")
    assert "contains code, which each replica runs: model.joblib (Pickle)" in out
    assert "not signed by a known key" in out
    await slipway("model", "push", "v1", f"{registry.host}/models/digits")
    _, _, err = await slipway("model", "pull", f"{registry.host}/models/digits:v1", "--name", "v2")
    assert "v2 contains code, which each replica runs: model.joblib (Pickle)" in err


async def test_an_import_that_a_policy_blocks_fails_with_the_file_and_the_rule(
    life: ModelLife, slipway: Slipway, files: Callable[..., str]
) -> None:
    await life.annotate(model_policy="noCode")
    code, out, err = await slipway("model", "import", files(), "--model", "digits", "--version", "v1")
    assert (code, out) == (1, "")
    assert "v1 is blocked: ContainsCode: model.joblib (Pickle) contains code" in err


async def upload(image: ForeignImage, target: str) -> None:
    async with Registry(Credentials.none()) as client:
        reference = Reference.parse(target)
        for data in (image.config, *image.blobs.values()):
            await uploads.upload(
                client, reference, Blob(oci.digest_of(data), len(data)), lambda data=data: [data]
            )
        await manifests.put(client, reference, image.manifest)


async def test_a_pull_of_300_kib_that_unpack_to_300_mib_is_refused_and_leaves_nothing(
    life: ModelLife, slipway: Slipway, registry: RegistryServer
) -> None:
    bomb = gzip_bomb(300)
    ((digest, blob),) = bomb.blobs.items()
    assert len(blob) < 400 * 1024
    await upload(bomb, f"{registry.host}/models/bomb:v1")
    code, _, err = await slipway("model", "pull", f"{registry.host}/models/bomb:v1")
    assert code == 1
    assert f"InvalidImage: layer {digest}" in err
    assert f"may unpack to {len(blob) * 100} bytes" in err
    assert life.store.images() == []
    assert life.store.size() == 0
