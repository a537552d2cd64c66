"""ModelVersions from their source to their deletion, with the real API and a real store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from serving.planning.models import retention
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from tests.rig.control_plane.model_controllers import ModelLife

Files = Callable[..., str]
pytestmark = pytest.mark.timeout(60)


async def test_a_version_of_a_path_becomes_ready_and_the_latest_of_its_model(
    life: ModelLife, files: Files
) -> None:
    await life.version("v1", path=files())
    status = await life.ready("v1")
    assert [file["path"] for file in status["files"]] == ["model.joblib"]
    assert life.store.verify(status["digest"], deep=True)
    model = await life.until("digits", lambda m: "latestVersion" in m.get("status", {}), kinds.MODEL)
    assert model["status"]["latestVersion"]["name"] == "v1"
    owners = (await life.get(kinds.MODEL_VERSION, "v1"))["metadata"]["ownerReferences"]
    assert [(o["kind"], o["uid"]) for o in owners] == [("Model", model["metadata"]["uid"])]


async def test_deletion_removes_the_image_unless_another_version_has_it(
    life: ModelLife, files: Files
) -> None:
    for name, path in {"v1": files("a"), "v2": files("b")}.items():
        await life.version(name, path=path)
    digest = (await life.ready("v1"))["digest"]
    assert (await life.ready("v2"))["digest"] == digest
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")
    assert life.store.has(digest)
    await life.delete(kinds.MODEL_VERSION, "v2")
    await life.gone(kinds.MODEL_VERSION, "v2")
    assert not life.store.has(digest)


async def test_deletion_waits_for_users_of_the_image_and_names_them(life: ModelLife, files: Files) -> None:
    await life.version("v1", path=files())
    digest = (await life.ready("v1"))["digest"]
    await life.inference("inf", "v1")
    life.store.pin(digest, "pod-7")
    await life.until("v1", lambda _: len(life.store.pins(digest)) == 2)
    await life.delete(kinds.MODEL_VERSION, "v1")

    def waits_for(whom: str) -> Callable[[dict[str, object]], bool]:
        def says(version: dict[str, object]) -> bool:
            return retention.is_reported(version, whom)

        return says

    waiting = await life.until("v1", waits_for("used by Inference inf"))
    assert conditions.is_true(waiting, "Ready")
    await life.delete(kinds.INFERENCE, "inf")
    await life.until("v1", waits_for("its image is pinned by pod-7"))
    assert life.store.has(digest)
    life.store.unpin(digest, "pod-7")
    await life.gone(kinds.MODEL_VERSION, "v1")
    assert not life.store.has(digest)


async def test_deletion_of_a_model_deletes_its_versions_and_no_new_model_is_created(
    life: ModelLife, files: Files
) -> None:
    await life.version("v1", path=files())
    digest = (await life.ready("v1"))["digest"]
    await life.delete(kinds.MODEL, "digits")
    await life.gone(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL, "digits")
    assert not life.store.has(digest)


async def test_versions_get_a_new_model_when_theirs_is_deleted_without_them(
    life: ModelLife, files: Files
) -> None:
    await life.version("v1", path=files())
    await life.ready("v1")
    old = await life.get(kinds.MODEL, "digits")
    await life.kube.delete(kinds.MODEL, life.namespace, "digits", propagation="Orphan")

    def is_owned_by_another(version: dict[str, Any]) -> bool:
        owners = [owner["uid"] for owner in version["metadata"].get("ownerReferences", [])]
        return bool(owners) and old["metadata"]["uid"] not in owners

    await life.until("v1", is_owned_by_another)
    assert (await life.get(kinds.MODEL, "digits"))["metadata"]["uid"] != old["metadata"]["uid"]


async def test_retention_keeps_the_newest_version_and_versions_in_use(life: ModelLife, files: Files) -> None:
    await life.create(kinds.MODEL, "digits", {"retention": {"keep": 1}})
    await life.inference("inf", "v1")
    for number in (1, 2, 3):
        await life.version(f"v{number}", path=files(f"f{number}", model=f"weights {number}"))
        await life.ready(f"v{number}")
    await life.gone(kinds.MODEL_VERSION, "v2")
    versions = {
        v["metadata"]["name"] for v in (await life.kube.list(kinds.MODEL_VERSION, life.namespace)).items
    }
    assert versions == {"v1", "v3"}
    await life.announced("digits", "VersionRetired")
    await life.delete(kinds.INFERENCE, "inf")
    await life.gone(kinds.MODEL_VERSION, "v1")


async def test_files_of_a_storage_become_an_image_and_the_download_is_removed(life: ModelLife) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/life-bucket/digits/model.joblib", b"weights")
    memory.pipe("/life-bucket/digits/deep/config.json", b"{}")
    await life.version("v1", uri="memory://life-bucket/digits")
    status = await life.ready("v1")
    assert [file["path"] for file in status["files"]] == ["deep/config.json", "model.joblib"]
    assert (status["lineage"]["kind"], status["lineage"]["uri"]) == ("URI", "memory://life-bucket/digits")
    assert list(life.data.downloads.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "reason", "words"),
    [
        ({"uri": "memory://life-nowhere"}, "SourceNotFound", "memory://life-nowhere"),
        ({"uri": "nosuch://bucket/x"}, "UnknownStorage", "nosuch://"),
        ({"path": "/nowhere/at/all"}, "InvalidOutput", "/nowhere/at/all"),
        ({"uri": "file:///nowhere/at/all"}, "InvalidOutput", "/nowhere/at/all"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_version_fails_with_the_name_of_its_missing_source(
    life: ModelLife, source: dict[str, str], reason: str, words: str
) -> None:
    await life.version("v1", **source)
    failure = await life.failed("v1")
    assert failure[0] == reason
    assert words in failure[1]
    await life.announced("v1", reason)


async def test_a_missing_driver_is_named(life: ModelLife, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        known_implementations,
        "absent",
        {"class": "no_such_driver.Files", "err": "Install no_such_driver to access it"},
    )
    await life.version("v1", uri="absent://bucket/x")
    reason, message = await life.failed("v1")
    assert reason == "StorageDriverMissing"
    assert "no_such_driver" in message


async def test_the_lineage_of_a_file_uri_has_the_uri(life: ModelLife, files: Files, tmp_path: Path) -> None:
    path = files("here")
    await life.version("v1", uri=f"file://{path}")
    lineage = (await life.ready("v1"))["lineage"]
    assert (lineage["kind"], lineage["uri"]) == ("URI", f"file://{path}")
