"""Detection and repair of images whose files another program has changed."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import Built
from serving.images.documents import image, oci
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.system.files import renames
from tests.objects.models.model_images import built_in, carry, foreign, member, tar_of, write_trained

ORIGIN = "registry.example/m"


@pytest.fixture
def built(store: ModelStore, tmp_path: Path) -> Built:
    """Its files are known by name."""
    return built_in(store, write_trained(tmp_path / "out"))


def weights(store: ModelStore, built: Built) -> Path:
    return store.tree(built.digest) / "models" / "weights.bin"


def rewrite_with_its_time(store: ModelStore, built: Built) -> Path:
    path = weights(store, built)
    old_stat = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"evil")
    os.utime(path, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))
    path.chmod(0o444)
    return path


def exchange(store: ModelStore, built: Built) -> Path:
    path = weights(store, built)
    path.parent.chmod(0o755)
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)
    return path


def delete(store: ModelStore, built: Built) -> Path:
    weights(store, built).parent.chmod(0o755)
    weights(store, built).unlink()
    return weights(store, built)


def add(store: ModelStore, built: Built) -> Path:
    weights(store, built).parent.chmod(0o755)
    weights(store, built).with_name("more").touch()
    return weights(store, built).with_name("more")


def change_mode(store: ModelStore, built: Built) -> Path:
    weights(store, built).chmod(0o666)
    return weights(store, built)


def change_manifest(store: ModelStore, built: Built) -> Path:
    path = store.tree(built.digest) / "manifest.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"accuracy", b"accuracv"))
    return path


def drop_manifest(store: ModelStore, built: Built) -> Path:
    store.tree(built.digest).chmod(0o755)
    (store.tree(built.digest) / "manifest.json").unlink()
    return store.tree(built.digest) / "manifest.json"


def change_seal(store: ModelStore, built: Built) -> Path:
    path = Path(f"{store.tree(built.digest)}.seal.json")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-10])
    return path


def empty_seal(store: ModelStore, built: Built) -> Path:
    path = Path(f"{store.tree(built.digest)}.seal.json")
    path.chmod(0o644)
    path.write_text('{"files": null}')
    return path


def drop_seal(store: ModelStore, built: Built) -> Path:
    path = Path(f"{store.tree(built.digest)}.seal.json")
    path.unlink()
    return path


def link(store: ModelStore, built: Built) -> Path:
    path = delete(store, built)
    path.symlink_to("/etc/hostname")
    return path


def change_list(store: ModelStore, built: Built) -> Path:
    """Its size and its times stay."""
    path = store.tree(built.digest) / "files.json"
    old_stat = path.stat()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"weights.bin", b"weightz.bin"))
    path.chmod(0o444)
    os.utime(path, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))
    return path


def drop_list(store: ModelStore, built: Built) -> Path:
    path = store.tree(built.digest) / "files.json"
    path.parent.chmod(0o755)
    path.unlink()
    return path


def add_link_to_directory(store: ModelStore, built: Built) -> Path:
    path = weights(store, built).with_name("more")
    path.parent.chmod(0o755)
    path.symlink_to("/etc")
    return path


def link_list(store: ModelStore, built: Built) -> Path:
    path = drop_list(store, built)
    path.symlink_to("/etc/hostname")
    return path


def restore_a_backup(store: ModelStore, built: Built) -> Path:
    tree = store.tree(built.digest)
    shutil.copytree(tree, tree.with_name("copy"))
    disk.remove_tree(tree)
    tree.with_name("copy").rename(tree)
    return tree


REPAIRABLE = (
    exchange,
    add,
    add_link_to_directory,
    change_mode,
    change_list,
    drop_list,
    link_list,
    change_seal,
    empty_seal,
    drop_seal,
    restore_a_backup,
)
DAMAGED = (rewrite_with_its_time, delete, change_manifest, drop_manifest, link)


def function_name(act: Callable) -> str:
    return act.__name__


def check_is_named(store: ModelStore, built: Built, touched: Path) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.verify(built.digest)
    assert caught.value.reason == "SealBroken"
    assert str(touched) in str(caught.value)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("meddle", REPAIRABLE, ids=function_name)
def test_image_is_repaired_when_all_its_bytes_are_present(
    meddle: Callable[[ModelStore, Built], Path], compression: str, store: ModelStore, tmp_path: Path
) -> None:
    built = built_in(store, write_trained(tmp_path / "out"), compression=compression)
    store.pin(built.digest, "pod/a")
    assert store.repair(built.digest) is None
    check_is_named(store, built, meddle(store, built))
    assert ModelStore(store.root).repair(built.digest) is None
    assert store.verify(built.digest, deep=True) == built.files
    assert store.pins(built.digest) == {"pod/a"}
    assert len(store.referrers(built.digest)) == 2


@pytest.mark.parametrize("meddle", DAMAGED, ids=function_name)
def test_damaged_image_is_kept_until_it_can_be_pulled_again(
    meddle: Callable[[ModelStore, Built], Path], store: ModelStore, built: Built, tmp_path: Path
) -> None:
    registry = ModelStore(tmp_path / "registry")
    carry(store, registry, built.digest)
    check_is_named(store, built, meddle(store, built))
    with pytest.raises(errors.Permanent) as caught:
        store.repair(built.digest)
    assert caught.value.reason == "SealBroken"
    assert store.has(built.digest)
    store.set_origin(built.digest, ORIGIN)
    store.pin(built.digest, "pod/a")
    assert ModelStore(store.root).repair(built.digest) == ORIGIN
    assert not store.has(built.digest)
    assert (store.pins(built.digest), store.origin(built.digest)) == ({"pod/a"}, ORIGIN)
    carry(registry, ModelStore(store.root), built.digest)
    assert store.verify(built.digest, deep=True) == built.files
    assert store.pins(built.digest) == {"pod/a"}


@pytest.mark.parametrize("exchanges", [True, False])
def test_image_that_cannot_be_pulled_again_is_kept_when_the_disk_is_full_at_its_repair(
    store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch, *, exchanges: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if not exchanges:
        monkeypatch.setattr(renames, "exchange", lambda *_: False)
    exchange(store, built)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "replace", full)
        with pytest.raises(errors.Temporary) as caught:
            store.repair(built.digest)
    assert caught.value.reason == "DiskFull"
    assert ModelStore(store.root).repair(built.digest) is None
    assert store.verify(built.digest, deep=True) == built.files


def test_image_with_all_its_bytes_is_kept_when_the_disk_has_no_room_for_its_repair(
    store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise errors.Temporary("DiskFull", "the disk for the model's files is full", retry_after=30.0)

    store.set_origin(built.digest, ORIGIN)
    exchange(store, built)
    monkeypatch.setattr(disk, "require_room", full)
    with pytest.raises(errors.Temporary):
        store.repair(built.digest)
    assert store.has(built.digest)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff"])
def test_store_opens_when_a_referrer_is_damaged(
    content: bytes, store: ModelStore, built: Built, tmp_path: Path
) -> None:
    registry = ModelStore(tmp_path / "registry")
    carry(store, registry, built.digest)
    lineage = store.root / "blobs/sha256" / built.lineage_digest.removeprefix("sha256:")
    lineage.chmod(0o644)
    lineage.write_bytes(content)
    later = ModelStore(store.root)
    assert [oci.digest_of(document) for _, document in later.referrers(built.digest)] == [
        built.modelpack_digest
    ]
    assert later.verify(built.digest, deep=True) == built.files
    later.remove(built.digest)
    carry(registry, later, built.digest)
    assert len(later.referrers(built.digest)) == 2
    assert later.repositories(built.digest) == registry.repositories(built.digest)


def test_a_changed_list_of_an_image_of_another_builder_is_repaired(store: ModelStore) -> None:
    built = foreign(tar_of([member("models/w", b"w")]))
    built.bring(store)
    listing = store.tree(built.digest) / "files.json"
    intact = listing.read_bytes()
    listing.chmod(0o644)
    listing.write_bytes(intact + b" ")
    with pytest.raises(errors.Permanent, match=r"files\.json is not the list"):
        store.verify(built.digest)
    assert store.repair(built.digest) is None
    assert listing.read_bytes() == intact


def test_an_image_of_a_release_without_lists_gets_its_list_when_the_store_is_opened(
    store: ModelStore, built: Built
) -> None:
    """Such a release had the same seals."""
    seal = Path(f"{store.tree(built.digest)}.seal.json")
    sealed, listing = seal.read_bytes(), drop_list(store, built)
    store.tree(built.digest).chmod(0o555)
    later = ModelStore(store.root)
    assert disk.file_digest(listing) == built.files_digest
    assert later.verify(built.digest, deep=True) == built.files
    assert seal.read_bytes() == sealed
    assert [stat.S_IMODE(path.stat().st_mode) for path in (listing, listing.parent)] == [0o444, 0o555]


def test_changed_shared_blob_is_replaced_when_it_is_imported_again(
    store: ModelStore, built: Built, tmp_path: Path
) -> None:
    registry = ModelStore(tmp_path / "registry")
    carry(store, registry, built.digest)
    config = store.root / "blobs/sha256" / image.parse(store.read_manifest(built.digest)).config.digest[7:]
    config.chmod(0o644)
    config.write_bytes(b"{}")
    store.verify(built.digest)
    carry(registry, store, built.digest)
    assert store.verify(built.digest, deep=True) == built.files


def test_deep_verification_finds_bytes_changed_on_the_disk(
    store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = disk.stat_tree(store.tree(built.digest))
    rewrite_with_its_time(store, built)
    monkeypatch.setattr(disk, "stat_tree", lambda _: stamps)
    store.verify(built.digest)
    with pytest.raises(errors.Permanent, match=r"weights\.bin does not have the digest"):
        store.verify(built.digest, deep=True)


def test_layer_with_changed_files_cannot_be_read(store: ModelStore, built: Built) -> None:
    rewrite_with_its_time(store, built)
    layer = image.parse(store.read_manifest(built.digest)).layers[1]
    chunks = store.read_blob(layer.digest)
    with pytest.raises(errors.Permanent, match="no longer has the bytes"):
        list(chunks)
    delete(store, built)
    with pytest.raises(errors.Permanent, match="cannot be read: No such file"):
        list(store.read_blob(layer.digest))


def test_deep_verification_finds_a_missing_blob(store: ModelStore, built: Built) -> None:
    config = image.parse(store.read_manifest(built.digest)).config.digest
    (store.root / "blobs" / "sha256" / config.removeprefix("sha256:")).unlink()
    store.verify(built.digest)
    with pytest.raises(errors.Permanent, match="missing or does not have"):
        store.verify(built.digest, deep=True)
