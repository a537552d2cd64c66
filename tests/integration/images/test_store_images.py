"""Images that come into the store and leave it: by the same bytes, whoever built them, and nothing half."""

import json
import tarfile
import threading
from pathlib import Path

import pytest

from serving import errors
from serving.images.documents import image, oci
from serving.images.imports import tarball
from serving.images.store.model_store import ModelStore
from tests.objects.model_images import built_in, carry, foreign, member, pieces, tar_of, write_trained


@pytest.fixture
def other(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "other")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return write_trained(tmp_path / "out")


def contents(store: ModelStore) -> dict[str, bytes]:
    """Everything that is the same in two stores with the same images."""
    skipped = ("used", "origin", "lock")
    return {
        str(path.relative_to(store.root)): b"" if path.name.endswith(".seal.json") else path.read_bytes()
        for path in store.root.rglob("*")
        if path.is_file() and path.name not in skipped
    }


def nothing_is_in(store: ModelStore) -> bool:
    return not contents(store) and not list((store.root / "tmp").iterdir())


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_is_pulled_is_what_was_built(
    compression: str, store: ModelStore, other: ModelStore, trained: Path
) -> None:
    built = built_in(store, trained, compression=compression)
    carry(store, other, built.digest, origin="registry.example/m")
    assert other.verify(built.digest, deep=True) == built.files
    assert contents(other) == contents(store)
    assert other.origin(built.digest) == "registry.example/m"


def test_layers_in_zstd_hold_the_tars_that_the_config_names(store: ModelStore, trained: Path) -> None:
    built = built_in(store, trained, compression="zstd")
    plain = built_in(store, trained)
    assert plain.files == built.files
    manifest = image.parse(store.read_manifest(built.digest))
    plain_manifest = image.parse(store.read_manifest(plain.digest))
    config = b"".join(store.read_blob(manifest.config.digest))
    assert list(image.diff_ids(config, 2)) == [layer.digest for layer in plain_manifest.layers]
    for layer, tar in zip(manifest.layers, plain_manifest.layers, strict=True):
        assert layer.compression == "zstd"
        unpacked = tarball.decompressed(tarball.LayerStream(store.read_blob(layer.digest)), "zstd").read(-1)
        assert unpacked == b"".join(store.read_blob(tar.digest))
    packs = [
        json.loads(d) for f, d in store.referrers(built.digest) if f["artifactType"] == oci.MODELPACK_TYPE
    ]
    assert {found["mediaType"] for found in packs[0]["layers"]} == {f"{oci.MODELPACK_WEIGHT_TYPE}+zstd"}


@pytest.mark.parametrize("compression", ["", "gzip", "zstd"])
def test_an_image_of_another_builder_has_its_files_below_models(compression: str, store: ModelStore) -> None:
    base = tar_of([member("bin/sh", b"#!"), member("bin/ln", kind=tarfile.SYMTYPE, link="/bin/sh")])
    model = tar_of([member("./models/", kind=tarfile.DIRTYPE), member("./models/a/w.bin", b"w" * 300_000)])
    built = foreign(base, model, compression=compression)
    built.bring(store)
    assert [(file.path, file.size) for file in store.verify(built.digest, deep=True)] == [
        ("a/w.bin", 300_000)
    ]
    assert (store.tree(built.digest) / "manifest.json").read_bytes() == built.manifest
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


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("where", ["one layer", "two layers"])
def test_what_would_unpack_elsewhere_or_twice_is_refused(what: str, where: str, store: ModelStore) -> None:
    good = [member("models/w", b"weights"), member("models/d/x", b"x")]
    evil = REFUSED[what]
    tars = (tar_of(good), tar_of([evil])) if where == "two layers" else (tar_of([*good, evil]),)
    with pytest.raises(errors.Permanent) as caught:
        foreign(*tars).bring(store)
    assert caught.value.reason == "InvalidImage"
    assert nothing_is_in(store)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda tar: tar[:700], "ends within a file"),
        (lambda tar: b"\xff" * 512 + tar, "cannot be read"),
        (lambda tar: tar.rstrip(b"\0") + b"x" * 2000, "no tar header"),
        (lambda _: b"", "cannot be read"),
        (lambda _: tar_of([member("etc/passwd", b"x")]), "must have 1 to"),
    ],
)
def test_what_is_no_tar_of_a_model_is_refused(damage, says: str, store: ModelStore) -> None:
    tar = tar_of([member("models/w", b"w" * 4000)])
    with pytest.raises(errors.Permanent, match=says) as caught:
        foreign(damage(tar)).bring(store)
    assert caught.value.reason == "InvalidImage"
    assert nothing_is_in(store)


def test_headers_that_would_fill_memory_are_refused(store: ModelStore) -> None:
    info, data = member("models/w", b"w")
    info.pax_headers = {"comment": "c" * 3_000_000}
    with pytest.raises(errors.Permanent, match="bytes of headers"):
        foreign(tar_of([(info, data)]), compression="gzip").bring(store)
    assert nothing_is_in(store)


@pytest.mark.parametrize("damage", ["changed", "short", "long"])
@pytest.mark.parametrize("builder", ["us", "others"])
def test_a_layer_damaged_on_the_way_may_be_sent_again(
    damage: str, builder: str, store: ModelStore, other: ModelStore, trained: Path
) -> None:
    if builder == "us":
        built = built_in(other, trained)
        manifest = other.read_manifest(built.digest)
        layers = {x.digest: b"".join(other.read_blob(x.digest)) for x in image.parse(manifest).layers}
        config = b"".join(other.read_blob(image.parse(manifest).config.digest))
    else:
        made = foreign(tar_of([member("models/w", b"w" * 200_000)]), compression="gzip")
        manifest, layers, config = made.manifest, made.blobs, made.config
    with store.importing(manifest) as arriving:
        arriving.add_blob(oci.digest_of(config), config)
        for digest, data in layers.items():
            bad = bytearray(data)
            bad[len(bad) // 2] ^= 1
            sent = {"changed": bytes(bad), "short": data[: len(data) // 2], "long": data + b"x"}[damage]
            with pytest.raises(errors.Temporary) as caught:
                arriving.add_layer(digest, pieces(sent))
            assert caught.value.reason == "DigestMismatch"
            arriving.add_layer(digest, pieces(data))
    store.verify(oci.digest_of(manifest), deep=True)


def test_a_blob_with_another_digest_is_refused(store: ModelStore) -> None:
    made = foreign(tar_of([member("models/w", b"w")]))
    with pytest.raises(errors.Temporary, match="must be sha256"), store.importing(made.manifest) as arriving:
        arriving.add_blob(oci.digest_of(made.config), b"{}")
    assert nothing_is_in(store)


@pytest.mark.parametrize("left_out", ["config", "layer"])
def test_an_image_that_is_not_all_there_does_not_appear(left_out: str, store: ModelStore) -> None:
    made = foreign(tar_of([member("models/w", b"w")]))

    def bring() -> None:
        with store.importing(made.manifest) as arriving:
            if left_out != "config":
                arriving.add_blob(oci.digest_of(made.config), made.config)
            else:
                for digest, data in made.blobs.items():
                    arriving.add_layer(digest, [data])

    with pytest.raises(errors.Permanent, match=f"{left_out} sha256.* was not added"):
        bring()
    assert nothing_is_in(store)


def test_a_config_with_other_diff_ids_is_refused(store: ModelStore) -> None:
    made = foreign(tar_of([member("models/w", b"w")]))
    config = oci.encode({"rootfs": {"diff_ids": ["sha256:" + "0" * 64]}})
    manifest = oci.encode(json.loads(made.manifest) | {"config": oci.descriptor(oci.CONFIG_TYPE, config)})
    with pytest.raises(errors.Permanent, match="diff ID"):
        type(made)(manifest, config, made.blobs).bring(store)
    assert nothing_is_in(store)


@pytest.mark.parametrize("lie", ["digest", "path", "frame"])
def test_an_annotation_that_lies_about_the_files_is_refused(lie: str, store: ModelStore) -> None:
    tar = tar_of([member("models", kind=tarfile.DIRTYPE), member("models/w", b"w")])
    said = [
        {
            "path": "v" if lie == "path" else "w",
            "digest": oci.digest_of(b"x" if lie == "digest" else b"w"),
            "size": 1,
        }
    ]
    made = foreign(tar)
    document = json.loads(made.manifest)
    document["layers"][0]["annotations"] = {oci.FILES: json.dumps(said)}
    with pytest.raises(errors.Permanent, match="annotation"):
        type(made)(oci.encode(document), made.config, made.blobs).bring(store)
    assert nothing_is_in(store)


def test_layers_may_arrive_at_the_same_time(store: ModelStore, other: ModelStore, trained: Path) -> None:
    for i in range(6):
        (trained / f"w{i}").write_bytes(bytes([i]) * 1_200_000)
    built = built_in(other, trained)
    manifest = other.read_manifest(built.digest)
    parsed = image.parse(manifest)
    with store.importing(manifest) as arriving:
        threads = [
            threading.Thread(target=arriving.add_layer, args=(layer.digest, other.read_blob(layer.digest)))
            for layer in parsed.layers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        arriving.add_blob(parsed.config.digest, b"".join(other.read_blob(parsed.config.digest)))
    assert store.verify(built.digest, deep=True) == built.files


def test_a_pull_that_breaks_off_leaves_nothing(store: ModelStore, other: ModelStore, trained: Path) -> None:
    built = built_in(other, trained)
    layer = image.parse(other.read_manifest(built.digest)).layers[1]

    def broken_off():
        yield from list(other.read_blob(layer.digest))[:2]
        raise errors.Temporary("Unavailable", "the connection broke")

    with (
        pytest.raises(errors.Temporary, match="broke"),
        store.importing(other.read_manifest(built.digest)) as arriving,
    ):
        arriving.add_layer(layer.digest, broken_off())
    assert nothing_is_in(store)
