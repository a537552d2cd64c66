"""Imports into the store and exports from it: the same bytes, any builder, and no partial image."""

import json
import tarfile
import threading
from pathlib import Path

import pytest

from serving import errors
from serving.images.documents import image, oci
from serving.images.imports import tarball
from serving.images.store.model_store import ModelStore
from serving.resources.formats import file_list
from tests.objects.models.model_images import built_in, carry, foreign, member, pieces, tar_of, write_trained


@pytest.fixture
def second_store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "other")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return write_trained(tmp_path / "out")


def contents(store: ModelStore) -> dict[str, bytes]:
    """Return the files that are equal in two stores with the same images."""
    skipped = ("used", "origin", "lock")
    return {
        str(path.relative_to(store.root)): b"" if path.name.endswith(".seal.json") else path.read_bytes()
        for path in store.root.rglob("*")
        if path.is_file() and path.name not in skipped
    }


def is_empty(store: ModelStore) -> bool:
    return not contents(store) and not list((store.root / "tmp").iterdir())


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_pulled_image_is_the_built_one(
    compression: str, store: ModelStore, second_store: ModelStore, trained: Path
) -> None:
    built = built_in(store, trained, compression=compression)
    carry(store, second_store, built.digest, origin="registry.example/m")
    assert second_store.verify(built.digest, deep=True) == built.files
    assert contents(second_store) == contents(store)
    assert second_store.origin(built.digest) == "registry.example/m"


def test_zstd_layers_contain_the_tars_of_the_config(store: ModelStore, trained: Path) -> None:
    built = built_in(store, trained, compression="zstd")
    uncompressed = built_in(store, trained)
    assert uncompressed.files == built.files
    manifest = image.parse(store.read_manifest(built.digest))
    uncompressed_manifest = image.parse(store.read_manifest(uncompressed.digest))
    config = b"".join(store.read_blob(manifest.config.digest))
    assert list(image.diff_ids(config, 3)) == [layer.digest for layer in uncompressed_manifest.layers]
    assert manifest.layers[-1] == uncompressed_manifest.layers[-1]  # the list
    for layer, tar in zip(manifest.layers[:-1], uncompressed_manifest.layers[:-1], strict=True):
        assert layer.compression == "zstd"
        unpacked = tarball.decompressed(tarball.LayerStream(store.read_blob(layer.digest)), "zstd").read(-1)
        assert unpacked == b"".join(store.read_blob(tar.digest))
    packs = [
        json.loads(d) for f, d in store.referrers(built.digest) if f["artifactType"] == oci.MODELPACK_TYPE
    ]
    *of_files, of_list = [layer_descriptor["mediaType"] for layer_descriptor in packs[0]["layers"]]
    assert set(of_files) == {f"{oci.MODELPACK_WEIGHT_TYPE}+zstd"}
    assert of_list == oci.MODELPACK_WEIGHT_TYPE


@pytest.mark.parametrize("compression", ["", "gzip", "zstd"])
def test_image_of_another_builder_is_stored_with_its_files_below_models(
    compression: str, store: ModelStore
) -> None:
    base = tar_of([member("bin/sh", b"#!"), member("bin/ln", kind=tarfile.SYMTYPE, link="/bin/sh")])
    model = tar_of([member("./models/", kind=tarfile.DIRTYPE), member("./models/a/w.bin", b"w" * 300_000)])
    built = foreign(base, model, compression=compression)
    built.bring(store)
    assert [(file.path, file.size) for file in store.verify(built.digest, deep=True)] == [
        ("a/w.bin", 300_000)
    ]
    assert (store.tree(built.digest) / "manifest.json").read_bytes() == built.manifest
    listed = [("a/w.bin", oci.digest_of(b"w" * 300_000), 300_000)]
    assert (store.tree(built.digest) / "files.json").read_bytes() == file_list.encode(listed)
    for digest, data in built.blobs.items():
        assert b"".join(store.read_blob(digest)) == data


REFUSED = {
    "symbolic link": member("models/a", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "hard link": member("models/a", kind=tarfile.LNKTYPE, link="models/w"),
    "models is a link": member("models", kind=tarfile.SYMTYPE, link="/etc"),
    "device": member("models/a", kind=tarfile.CHRTYPE),
    "fifo": member("models/a", kind=tarfile.FIFOTYPE),
    "parent": member("models/../../evil", b"x"),
    "parent first": member("../models/evil", b"x"),
    "absolute": member("/models/evil", b"x"),
    "whiteout": member("models/.wh.w", b""),
    "whiteout of all": member(".wh.models", b""),
    "twice": member("models/w", b"again"),
    "same but for case": member("models/W", b"x"),
    "below a file": member("models/w/x", b"x"),
    "in the place of a directory": member("models/d", b"x"),
    "long name": member("models/" + "n" * 300, b"x"),
    "deep": member("models/" + "d/" * 80 + "x", b"x"),
    "odd type": member("models/a", kind=b"Z"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("layout", ["one layer", "two layers"])
def test_member_that_would_unpack_elsewhere_or_twice_is_refused(
    case: str, layout: str, store: ModelStore
) -> None:
    valid_members = [member("models/w", b"weights"), member("models/d/x", b"x")]
    evil = REFUSED[case]
    tars = (
        (tar_of(valid_members), tar_of([evil]))
        if layout == "two layers"
        else (tar_of([*valid_members, evil]),)
    )
    with pytest.raises(errors.Permanent) as caught:
        foreign(*tars).bring(store)
    assert caught.value.reason == "InvalidImage"
    assert is_empty(store)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tar: tar[:700], "ends within a file"),
        (lambda tar: b"\xff" * 512 + tar, "cannot be read"),
        (lambda tar: tar.rstrip(b"\0") + b"x" * 2000, "no tar header"),
        (lambda _: b"", "cannot be read"),
        (lambda _: tar_of([member("etc/passwd", b"x")]), "has no file below models/"),
    ],
)
def test_malformed_tar_is_refused(damage, message: str, store: ModelStore) -> None:
    tar = tar_of([member("models/w", b"w" * 4000)])
    with pytest.raises(errors.Permanent, match=message) as caught:
        foreign(damage(tar)).bring(store)
    assert caught.value.reason == "InvalidImage"
    assert is_empty(store)


def test_headers_that_would_fill_memory_are_refused(store: ModelStore) -> None:
    info, data = member("models/w", b"w")
    info.pax_headers = {"comment": "c" * 3_000_000}
    with pytest.raises(errors.Permanent, match="bytes of headers"):
        foreign(tar_of([(info, data)]), compression="gzip").bring(store)
    assert is_empty(store)


@pytest.mark.parametrize("damage", ["changed", "short", "long"])
@pytest.mark.parametrize("builder", ["us", "others"])
def test_layer_damaged_in_transit_can_be_sent_again(
    damage: str, builder: str, store: ModelStore, second_store: ModelStore, trained: Path
) -> None:
    if builder == "us":
        built = built_in(second_store, trained)
        manifest = second_store.read_manifest(built.digest)
        layers = {x.digest: b"".join(second_store.read_blob(x.digest)) for x in image.parse(manifest).layers}
        config = b"".join(second_store.read_blob(image.parse(manifest).config.digest))
    else:
        foreign_image = foreign(tar_of([member("models/w", b"w" * 200_000)]), compression="gzip")
        manifest, layers, config = foreign_image.manifest, foreign_image.blobs, foreign_image.config
    with store.importing(manifest) as arriving:
        arriving.add_blob(oci.digest_of(config), config)
        for digest, data in layers.items():
            changed = bytearray(data)
            changed[len(changed) // 2] ^= 1
            damaged = {"changed": bytes(changed), "short": data[: len(data) // 2], "long": data + b"x"}[
                damage
            ]
            with pytest.raises(errors.Temporary) as caught:
                arriving.add_layer(digest, pieces(damaged))
            assert caught.value.reason == "DigestMismatch"
            arriving.add_layer(digest, pieces(data))
    store.verify(oci.digest_of(manifest), deep=True)


def test_a_blob_with_another_digest_is_refused(store: ModelStore) -> None:
    foreign_image = foreign(tar_of([member("models/w", b"w")]))
    with (
        pytest.raises(errors.Temporary, match="must be sha256"),
        store.importing(foreign_image.manifest) as arriving,
    ):
        arriving.add_blob(oci.digest_of(foreign_image.config), b"{}")
    assert is_empty(store)


@pytest.mark.parametrize("left_out", ["config", "layer"])
def test_incomplete_image_is_not_stored(left_out: str, store: ModelStore) -> None:
    foreign_image = foreign(tar_of([member("models/w", b"w")]))

    def bring() -> None:
        with store.importing(foreign_image.manifest) as arriving:
            if left_out != "config":
                arriving.add_blob(oci.digest_of(foreign_image.config), foreign_image.config)
            else:
                for digest, data in foreign_image.blobs.items():
                    arriving.add_layer(digest, [data])

    with pytest.raises(errors.Permanent, match=f"{left_out} sha256.* was not added"):
        bring()
    assert is_empty(store)


def test_a_config_with_other_diff_ids_is_refused(store: ModelStore) -> None:
    foreign_image = foreign(tar_of([member("models/w", b"w")]))
    config = oci.encode({"rootfs": {"diff_ids": ["sha256:" + "0" * 64]}})
    manifest = oci.encode(
        json.loads(foreign_image.manifest) | {"config": oci.descriptor(oci.CONFIG_TYPE, config)}
    )
    with pytest.raises(errors.Permanent, match="diff ID"):
        type(foreign_image)(manifest, config, foreign_image.blobs).bring(store)
    assert is_empty(store)


@pytest.mark.parametrize("lie", ["digest", "path", "frame"])
def test_annotation_that_contradicts_the_files_is_refused(lie: str, store: ModelStore) -> None:
    tar = tar_of([member("models", kind=tarfile.DIRTYPE), member("models/w", b"w")])
    listed_files = [
        {
            "path": "v" if lie == "path" else "w",
            "digest": oci.digest_of(b"x" if lie == "digest" else b"w"),
            "size": 1,
        }
    ]
    foreign_image = foreign(tar)
    document = json.loads(foreign_image.manifest)
    document["layers"][0]["annotations"] = {oci.FILES: json.dumps(listed_files)}
    with pytest.raises(errors.Permanent, match="annotation"):
        type(foreign_image)(oci.encode(document), foreign_image.config, foreign_image.blobs).bring(store)
    assert is_empty(store)


@pytest.mark.parametrize("lie", ["digest", "list"])
def test_a_list_that_is_not_that_of_the_files_is_refused(lie: str, store: ModelStore) -> None:
    """No runtime would load the files from such an image: its list has not the digest of the ModelVersion."""
    true = oci.file_list_layer([oci.File("w", oci.digest_of(b"w"), 1)])
    false = oci.file_list_layer([oci.File("w", oci.digest_of(b"x"), 1)])
    (described, blob) = (true[0], false[1]) if lie == "list" else (false[0], true[1])

    def bring(described: oci.BuiltLayer, blob: bytes) -> None:
        listed = foreign(tar_of([member("models/w", b"w")]), blob)
        document = json.loads(listed.manifest)
        document["layers"][1]["annotations"] = {oci.FILE_LIST: described.file_list}
        type(listed)(oci.encode(document), listed.config, listed.blobs).bring(store)

    with pytest.raises(errors.Permanent, match=r"files\.json is not the list of the image's files"):
        bring(described, blob)
    assert is_empty(store)
    bring(*true)


def test_layers_can_be_added_concurrently(store: ModelStore, second_store: ModelStore, trained: Path) -> None:
    for i in range(6):
        (trained / f"w{i}").write_bytes(bytes([i]) * 1_200_000)
    built = built_in(second_store, trained)
    manifest = second_store.read_manifest(built.digest)
    parsed = image.parse(manifest)
    with store.importing(manifest) as arriving:
        threads = [
            threading.Thread(
                target=arriving.add_layer, args=(layer.digest, second_store.read_blob(layer.digest))
            )
            for layer in parsed.layers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        arriving.add_blob(parsed.config.digest, b"".join(second_store.read_blob(parsed.config.digest)))
    assert store.verify(built.digest, deep=True) == built.files


def test_interrupted_import_leaves_nothing(
    store: ModelStore, second_store: ModelStore, trained: Path
) -> None:
    built = built_in(second_store, trained)
    layer = image.parse(second_store.read_manifest(built.digest)).layers[1]

    def broken_off():
        yield from list(second_store.read_blob(layer.digest))[:2]
        raise errors.Temporary("Unavailable", "the connection broke")

    with (
        pytest.raises(errors.Temporary, match="broke"),
        store.importing(second_store.read_manifest(built.digest)) as arriving,
    ):
        arriving.add_layer(layer.digest, broken_off())
    assert is_empty(store)
