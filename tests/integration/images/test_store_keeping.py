"""What the store keeps, gives up, and says of what somebody else did to its files."""

import gc
import os
import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import errors
from serving.images import disk, image
from serving.images.build import Built, capture
from serving.images.catalog import Catalog
from serving.images.store import ModelStore
from serving.settings import StoreSettings
from tests.model_images import carry, write_trained

ORIGIN = "registry.example/m"


@pytest.fixture
def built(store: ModelStore, tmp_path: Path) -> Built:
    return built_in(store, write_trained(tmp_path / "out"))


def built_in(store: ModelStore, path: Path, **options) -> Built:
    return capture(path, store, repository="slipway.local/default/m", lineage={"uid": "1"}, **options)


def several(store: ModelStore, tmp_path: Path, count: int) -> list[str]:
    """Images that can be fetched again, the first of them used longest ago."""
    digests = []
    for seed in range(count):
        digests.append(built_in(store, write_trained(tmp_path / f"out-{seed}", seed=seed)).digest)
        store.set_origin(digests[-1], ORIGIN)
        used_at(store, digests[-1], 1000 + seed)
    return digests


def used_at(store: ModelStore, digest: str, seconds: int) -> None:
    os.utime(store.root / "images" / digest.removeprefix("sha256:") / "used", (seconds, seconds))


def test_what_is_pinned_stays_until_the_last_owner_has_gone_over_restarts(
    store: ModelStore, built: Built
) -> None:
    store.pin(built.digest, "pod/a")
    store.pin(built.digest, "modelversion/default/ä b")
    again = ModelStore(store.root)
    assert again.pins(built.digest) == again.owners() == {"pod/a", "modelversion/default/ä b"}
    assert not again.remove(built.digest)
    again.unpin(built.digest, "pod/a")
    again.unpin(built.digest, "never there")
    assert not store.remove(built.digest)
    store.unpin(built.digest, "modelversion/default/ä b")
    assert store.remove(built.digest)
    assert not store.has(built.digest)
    assert store.size() == 0


def test_an_image_that_is_not_there_cannot_be_pinned_or_given_an_origin(store: ModelStore) -> None:
    for act in (store.pin, store.set_origin):
        with pytest.raises(errors.Permanent) as caught:
            act("sha256:" + "0" * 64, "x")
        assert caught.value.reason == "ImageMissing"
    assert not list((store.root / "images").iterdir())


@pytest.mark.parametrize("owner", ["", ".", "..", "x" * 300])
def test_an_owner_that_is_no_file_name_is_refused(owner: str, store: ModelStore, built: Built) -> None:
    with pytest.raises(errors.Permanent, match="owner: must"):
        store.pin(built.digest, owner)


def test_removal_leaves_what_another_image_needs(store: ModelStore, tmp_path: Path) -> None:
    first = built_in(store, write_trained(tmp_path / "out"), compression="zstd")
    (tmp_path / "out" / "vocabulary" / "désert.txt").write_text("dune")
    second = built_in(store, tmp_path / "out", compression="zstd")
    shared = {
        layer.digest
        for digest in (first.digest, second.digest)
        for layer in image.parse(store.read_manifest(digest)).layers
    }
    assert len(shared) == 3
    assert store.remove(first.digest)
    assert store.verify(second.digest, deep=True) == second.files
    assert len(store.referrers(second.digest)) == 2
    assert store.remove(second.digest)
    assert store.size() == 0


def test_the_least_recently_used_go_first_and_no_more_than_needed(store: ModelStore, tmp_path: Path) -> None:
    digests = several(store, tmp_path, 4)
    store.pin(digests[0], "now")
    store.unpin(digests[0], "now")
    size = disk.size(store.tree(digests[0]))
    assert ModelStore(store.root).evict(store.size() - size) == [digests[1]]
    assert store.evict(store.size()) == []
    assert store.evict(0) == [digests[2], digests[3], digests[0]]


def test_neither_what_is_pinned_nor_what_is_nowhere_else_is_evicted(
    store: ModelStore, tmp_path: Path
) -> None:
    digests = several(store, tmp_path, 3)
    only_here = built_in(store, write_trained(tmp_path / "only", seed=9)).digest
    used_at(store, only_here, 1)
    store.pin(digests[0], "pod/a")
    assert store.evict(0) == digests[1:]
    assert set(store.images()) == {digests[0], only_here}


def test_a_store_with_a_bound_makes_room_for_what_comes_in(tmp_path: Path, store: ModelStore) -> None:
    digests = several(store, tmp_path, 3)
    size = disk.size(store.tree(digests[0]))
    small = ModelStore(tmp_path / "small", StoreSettings(max_bytes=size * 5 // 2))
    for number, digest in enumerate(digests):
        carry(store, small, digest, origin=ORIGIN)
        used_at(small, digest, 1000 + number)
    assert set(small.images()) == set(digests[1:])
    tiny = ModelStore(tmp_path / "tiny", StoreSettings(max_bytes=1))
    carry(store, tiny, digests[0], origin=ORIGIN)
    assert tiny.has(digests[0]), "what has just come in stays"


def weights(store: ModelStore, built: Built) -> Path:
    return store.tree(built.digest) / "models" / "weights.bin"


def rewrite_with_its_time(store: ModelStore, built: Built) -> Path:
    path = weights(store, built)
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"evil")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
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


def restore_a_backup(store: ModelStore, built: Built) -> Path:
    tree = store.tree(built.digest)
    shutil.copytree(tree, tree.with_name("copy"))
    disk.remove_tree(tree)
    tree.with_name("copy").rename(tree)
    return tree


BYTES_ARE_THERE = (exchange, add, change_mode, change_seal, empty_seal, drop_seal, restore_a_backup)
BYTES_ARE_GONE = (rewrite_with_its_time, delete, change_manifest, drop_manifest, link)


def named(act: Callable) -> str:
    return act.__name__


def check_is_named(store: ModelStore, built: Built, touched: Path) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.verify(built.digest)
    assert caught.value.reason == "SealBroken"
    assert str(touched) in str(caught.value)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("meddle", BYTES_ARE_THERE, ids=named)
def test_an_image_whose_bytes_are_all_there_is_made_sound_from_them(
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


@pytest.mark.parametrize("meddle", BYTES_ARE_GONE, ids=named)
def test_an_image_with_other_bytes_is_kept_until_it_can_be_fetched_again(
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


def test_a_changed_blob_that_images_share_is_replaced_when_it_comes_again(
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


def test_bytes_that_changed_on_the_disk_itself_are_found_by_a_deep_look(
    store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = disk.stat_tree(store.tree(built.digest))
    rewrite_with_its_time(store, built)
    monkeypatch.setattr(disk, "stat_tree", lambda _: seen)
    store.verify(built.digest)
    with pytest.raises(errors.Permanent, match=r"weights\.bin does not have the digest"):
        store.verify(built.digest, deep=True)


def test_a_layer_of_changed_files_is_not_passed_off_as_the_layer(store: ModelStore, built: Built) -> None:
    rewrite_with_its_time(store, built)
    layer = image.parse(store.read_manifest(built.digest)).layers[1]
    chunks = store.read_blob(layer.digest)
    with pytest.raises(errors.Permanent, match="does not give"):
        list(chunks)
    delete(store, built)
    with pytest.raises(errors.Permanent, match="cannot be read: No such file"):
        list(store.read_blob(layer.digest))


def test_a_kept_blob_that_is_gone_is_found_by_a_deep_look(store: ModelStore, built: Built) -> None:
    config = image.parse(store.read_manifest(built.digest)).config.digest
    (store.root / "blobs" / "sha256" / config.removeprefix("sha256:")).unlink()
    store.verify(built.digest)
    with pytest.raises(errors.Permanent, match="missing or does not have"):
        store.verify(built.digest, deep=True)


@pytest.mark.parametrize("moment", ["found", "read"])
def test_what_is_removed_while_it_is_asked_for_is_missing(
    moment: str, store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = image.parse(store.read_manifest(built.digest)).config.digest
    find, read = Path.is_file, Path.read_bytes

    def removed() -> None:
        monkeypatch.undo()
        assert store.remove(built.digest)

    def find_then_remove(path: Path) -> bool:
        found = find(path)
        removed()
        return found

    def remove_then_read(path: Path) -> bytes:
        removed()
        return read(path)

    if moment == "found":
        monkeypatch.setattr(Path, "is_file", find_then_remove)
        with pytest.raises(errors.Permanent) as caught:
            store.blob_size(config)
        assert caught.value.reason == "ImageMissing"
    else:
        monkeypatch.setattr(Path, "read_bytes", remove_then_read)
        assert store.referrers(built.digest) == []


def test_what_was_read_of_an_image_goes_with_it(store: ModelStore, built: Built) -> None:
    catalog = Catalog(store.root / "trees")
    found = weakref.ref(catalog.image(built.digest))
    assert catalog.digests() == [built.digest]
    assert found() is not None
    assert store.remove(built.digest)
    assert catalog.digests() == []
    gc.collect()
    assert found() is None


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Run all at the same time; an error of one of them is its result."""
    results: list[object] = [None] * len(acts)
    gate = threading.Barrier(len(acts))

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = acts[number]()
        except errors.SlipwayError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_pin_and_an_eviction_at_once_leave_a_pinned_image_or_none(
    store: ModelStore, built: Built, tmp_path: Path
) -> None:
    registry = ModelStore(tmp_path / "registry")
    carry(store, registry, built.digest)
    for _ in range(12):
        carry(registry, store, built.digest, origin=ORIGIN)
        other = ModelStore(store.root)
        pinned, evicted = at_once(lambda: store.pin(built.digest, "pod/a"), lambda: other.evict(0))  # noqa: B023 run at once
        if isinstance(pinned, errors.Permanent):
            assert pinned.reason == "ImageMissing"
            assert (evicted, store.has(built.digest)) == ([built.digest], False)
        else:
            assert (evicted, store.pins(built.digest)) == ([], {"pod/a"})
            assert store.verify(built.digest) == built.files
        store.unpin(built.digest, "pod/a")


def test_captures_and_evictions_at_once_lose_nothing_that_is_nowhere_else(
    store: ModelStore, tmp_path: Path
) -> None:
    outs = [write_trained(tmp_path / f"out-{seed}", seed=seed) for seed in (5, 6)]
    for _ in range(4):
        removable = several(store, tmp_path / os.urandom(4).hex(), 1)
        acts = [lambda out=out: built_in(ModelStore(store.root), out) for out in (*outs, *outs)]
        *captured, _ = at_once(*acts, lambda: store.evict(0))
        assert all(isinstance(found, Built) for found in captured)
        for found in captured:
            assert store.verify(found.digest, deep=True) == found.files
            assert len(store.referrers(found.digest)) == 2
        assert not store.has(removable[0])
        for found in captured:
            store.remove(found.digest)
    assert not list((store.root / "tmp").iterdir())
