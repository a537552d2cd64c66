"""The client against a real registry: transferred, skipped and mounted blobs, and pulled images."""

import asyncio
import filecmp
import os
from dataclasses import replace
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import Built, build_image
from serving.images.documents import image, oci
from serving.images.registry import Credentials, Reference, Registry, manifests, pull, push, referrers
from serving.images.store.model_store import ModelStore
from serving.settings import DEFAULTS
from tests.rig.servers.registry_server import RegistryServer

SMALL_CHUNKS = replace(DEFAULTS.registry, chunk_bytes=400_000)


def same_tree(a: Path, b: Path) -> bool:
    names = sorted(str(path.relative_to(a)) for path in a.rglob("*"))
    assert names == sorted(str(path.relative_to(b)) for path in b.rglob("*"))
    files = [name for name in names if (a / name).is_file()]
    return filecmp.cmpfiles(a, b, files, shallow=False)[0] == files


def blob_bytes(store: ModelStore, built: Built) -> int:
    """Bytes of the image's blobs and of those of the documents about it."""
    sizes: dict[str, int] = {}
    documents = [store.read_manifest(built.digest), *(data for _, data in store.referrers(built.digest))]
    for document in documents:
        parsed = manifests.StoredManifest("", "", document).document
        sizes |= {item["digest"]: item["size"] for item in [parsed["config"], *parsed["layers"]]}
    return sum(sizes.values())


def layer_sizes(store: ModelStore, built: Built) -> dict[str, int]:
    return {layer.digest: layer.size for layer in image.parse(store.read_manifest(built.digest)).layers}


async def test_pulled_image_is_the_pushed_one(
    target: Reference, store: ModelStore, built: Built, trained: Path, tmp_path: Path
) -> None:
    second_store = ModelStore(tmp_path / "other")
    async with Registry(Credentials.none(), SMALL_CHUNKS) as registry:
        pushed = await push(registry, store, built.digest, target)
        digest = await pull(registry, second_store, target)
    assert pushed.image == f"{target.name}@{built.digest}"
    assert pushed.bytes_uploaded == blob_bytes(store, built)
    assert digest == built.digest
    assert second_store.verify(digest, deep=True) == built.files
    assert same_tree(trained, second_store.tree(digest) / "models")
    assert second_store.origin(digest) == pushed.image
    assert {data for _, data in second_store.referrers(digest)} == {
        data for _, data in store.referrers(digest)
    }


@pytest.mark.usefixtures("pushed")
async def test_pull_can_be_repeated_when_its_image_is_evicted_before_it_ends(
    registry: Registry, target: Reference, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_store = ModelStore(tmp_path / "other")
    set_origin = ModelStore.set_origin

    def evict_first(store: ModelStore, digest: str, reference: str) -> None:
        assert store.remove(digest)
        set_origin(store, digest, reference)

    monkeypatch.setattr(ModelStore, "set_origin", evict_first)
    with pytest.raises(errors.Temporary) as raised:
        await pull(registry, second_store, target)
    assert raised.value.reason == "ImageMissing"
    monkeypatch.setattr(ModelStore, "set_origin", set_origin)
    assert await pull(registry, second_store, target) == built.digest


@pytest.mark.usefixtures("pushed")
async def test_second_push_uploads_nothing(
    registry: Registry, target: Reference, store: ModelStore, built: Built
) -> None:
    second_push = await push(registry, store, built.digest, target)
    assert second_push.bytes_uploaded == second_push.bytes_mounted == 0
    assert second_push.bytes_skipped == blob_bytes(store, built)


@pytest.mark.usefixtures("pushed")
async def test_push_after_one_changed_file_uploads_only_its_layer(
    registry: Registry, target: Reference, store: ModelStore, trained: Path
) -> None:
    changed = trained / "weights" / "part-1.bin"
    changed.write_bytes(os.urandom(1_100_001))
    second_image = build_image(trained, store, repository="r", lineage={"job": "train-digits"})
    second_push = await push(registry, store, second_image.digest, target.tagged("v2"))
    documents = blob_bytes(store, second_image) - sum(layer_sizes(store, second_image).values())
    assert 1_100_001 < second_push.bytes_uploaded <= 1_100_001 + 10_000 + documents
    assert second_push.bytes_skipped > 2_000_000


@pytest.mark.usefixtures("pushed")
async def test_layers_are_mounted_from_another_repository(
    registry: Registry, target: Reference, store: ModelStore, built: Built
) -> None:
    second_target = target.sibling("mount/second").tagged("v1")
    second_push = await push(
        registry, store, built.digest, second_target, mount_from=["mount/none", target.repository]
    )
    manifest = await manifests.get(registry, second_target)
    assert second_push.bytes_uploaded == 0
    assert second_push.bytes_mounted == blob_bytes(store, built)
    assert manifest.digest == built.digest


async def test_only_changed_layers_are_downloaded(
    shared_registry: RegistryServer,
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    trained: Path,
    tmp_path: Path,
) -> None:
    (trained / "weights" / "part-2.bin").write_bytes(os.urandom(1_200_000))
    second_image = build_image(trained, store, repository="r", lineage={})
    second_store = ModelStore(tmp_path / "other")
    for version in (built, second_image):
        await push(registry, store, version.digest, target.at(version.digest))
    await pull(registry, second_store, target.at(built.digest))
    requests_before = len(shared_registry.requests())
    await pull(registry, second_store, target.at(second_image.digest))
    assert second_store.verify(second_image.digest, deep=True) == second_image.files
    fetched = [
        line
        for line in shared_registry.requests()[requests_before:]
        if line.startswith("GET") and "/blobs/" in line
    ]
    layers = layer_sizes(store, second_image)
    # The file that changed, and the list of the files.
    assert {layers[line.rsplit("/", 1)[1]] for line in fetched if line.rsplit("/", 1)[1] in layers} == {
        max(layers.values()),
        min(layers.values()),
    }


@pytest.mark.usefixtures("pushed")
async def test_referrers_are_listed_at_the_fallback_tag(
    registry: Registry, target: Reference, built: Built
) -> None:
    listed = await referrers.find(registry, target, built.digest)
    index = await manifests.get(registry, target.tagged(built.digest.replace(":", "-")))
    pack = await manifests.get(registry, target.tagged("v1-modelpack"))
    assert {entry["artifactType"] for entry in listed} == {oci.MODELPACK_TYPE, oci.LINEAGE_TYPE}
    assert index.media_type == oci.INDEX_TYPE
    assert pack.digest == built.modelpack_digest


@pytest.mark.usefixtures("pushed")
async def test_concurrent_writers_keep_each_others_referrers(
    registry: Registry, target: Reference, store: ModelStore, built: Built
) -> None:
    subject = oci.descriptor(oci.MANIFEST_TYPE, store.read_manifest(built.digest))
    documents = [
        oci.encode(
            {
                "schemaVersion": 2,
                "mediaType": oci.MANIFEST_TYPE,
                "artifactType": f"test/{i}",
                "config": oci.descriptor(oci.EMPTY_TYPE, oci.EMPTY),
                "layers": [],
                "subject": subject,
            }
        )
        for i in range(2)
    ]
    async with Registry(Credentials.none()) as stranger:
        await asyncio.gather(
            referrers.add(registry, target, built.digest, documents[0]),
            referrers.add(stranger, target, built.digest, documents[1]),
        )
    listed = await referrers.find(registry, target, built.digest)
    assert {f"test/{i}" for i in range(2)} <= {entry["artifactType"] for entry in listed}


@pytest.mark.usefixtures("pushed")
async def test_index_is_resolved_to_the_image_for_linux_amd64(
    registry: Registry, target: Reference, store: ModelStore, built: Built, tmp_path: Path
) -> None:
    descriptor = oci.descriptor(oci.MANIFEST_TYPE, store.read_manifest(built.digest))
    entries = [
        descriptor | {"digest": built.modelpack_digest, "platform": {"os": "linux", "architecture": "arm64"}},
        descriptor | {"platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": entries})
    await manifests.put(registry, target.tagged("many"), index)
    assert await pull(registry, ModelStore(tmp_path / "other"), target.tagged("many")) == built.digest


async def test_absent_image_is_not_found(registry: Registry, target: Reference, store: ModelStore) -> None:
    for missing in (target, target.at("sha256:" + "0" * 64)):
        with pytest.raises(errors.Permanent) as raised:
            await pull(registry, store, missing)
        assert raised.value.reason == "ImageNotFound"
        assert str(missing) in str(raised.value)


@pytest.mark.usefixtures("pushed")
async def test_artifact_that_is_no_image_is_refused(
    registry: Registry, target: Reference, built: Built, tmp_path: Path
) -> None:
    second_store = ModelStore(tmp_path / "other")
    with pytest.raises(errors.Permanent) as raised:
        await pull(registry, second_store, target.tagged("v1-modelpack"))
    assert raised.value.reason == "InvalidImage"
    assert not second_store.has(built.modelpack_digest)


async def test_reference_with_another_digest_is_refused_before_anything_is_sent(
    shared_registry: RegistryServer, registry: Registry, target: Reference, store: ModelStore, built: Built
) -> None:
    requests_before = len(shared_registry.requests())
    with pytest.raises(errors.Permanent, match="another digest"):
        await push(registry, store, built.digest, target.at("sha256:" + "0" * 64))
    assert len(shared_registry.requests()) == requests_before
