"""Pins, removal and eviction of images."""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import Built
from serving.images.documents import image
from serving.images.store import disk
from serving.images.store.catalog import Catalog
from serving.images.store.model_store import ModelStore
from serving.settings import StoreSettings
from tests.objects.models.model_images import built_in, carry, write_trained

ORIGIN = "registry.example/m"


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


def test_pinned_image_stays_until_its_last_owner_unpins_it(store: ModelStore, built: Built) -> None:
    store.pin(built.digest, "pod/a")
    store.pin(built.digest, "modelversion/default/ä b")
    reopened = ModelStore(store.root)
    assert reopened.pins(built.digest) == reopened.owners() == {"pod/a", "modelversion/default/ä b"}
    assert not reopened.remove(built.digest)
    reopened.unpin(built.digest, "pod/a")
    reopened.unpin(built.digest, "never there")
    assert not store.remove(built.digest)
    store.unpin(built.digest, "modelversion/default/ä b")
    assert store.remove(built.digest)
    assert not store.has(built.digest)
    assert store.size() == 0


def test_absent_image_cannot_be_pinned_or_given_an_origin(store: ModelStore) -> None:
    for operation in (store.pin, store.set_origin):
        with pytest.raises(errors.Permanent) as caught:
            operation("sha256:" + "0" * 64, "x")
        assert caught.value.reason == "ImageMissing"
    assert not list((store.root / "images").iterdir())


@pytest.mark.parametrize("owner", ["", ".", "..", "x" * 300])
def test_an_owner_that_is_no_file_name_is_refused(owner: str, store: ModelStore, built: Built) -> None:
    with pytest.raises(errors.Permanent, match="owner: must"):
        store.pin(built.digest, owner)


def test_removal_keeps_blobs_shared_with_another_image(store: ModelStore, tmp_path: Path) -> None:
    first = built_in(store, write_trained(tmp_path / "out"), compression="zstd")
    (tmp_path / "out" / "vocabulary" / "désert.txt").write_text("dune")
    second = built_in(store, tmp_path / "out", compression="zstd")
    shared = {
        layer.digest
        for digest in (first.digest, second.digest)
        for layer in image.parse(store.read_manifest(digest)).layers
    }
    assert len(shared) == 5
    assert store.remove(first.digest)
    assert store.verify(second.digest, deep=True) == second.files
    assert len(store.referrers(second.digest)) == 2
    assert store.remove(second.digest)
    assert store.size() == 0


def test_eviction_removes_the_least_recently_used_and_no_more_than_needed(
    store: ModelStore, tmp_path: Path
) -> None:
    digests = several(store, tmp_path, 4)
    store.pin(digests[0], "now")
    store.unpin(digests[0], "now")
    size = disk.size(store.tree(digests[0]))
    assert ModelStore(store.root).evict(store.size() - size) == [digests[1]]
    assert store.evict(store.size()) == []
    assert store.evict(0) == [digests[2], digests[3], digests[0]]


def test_pinned_images_and_those_without_an_origin_are_not_evicted(store: ModelStore, tmp_path: Path) -> None:
    digests = several(store, tmp_path, 3)
    only_here = built_in(store, write_trained(tmp_path / "only", seed=9)).digest
    used_at(store, only_here, 1)
    store.pin(digests[0], "pod/a")
    assert store.evict(0) == digests[1:]
    assert set(store.images()) == {digests[0], only_here}


def test_bounded_store_evicts_to_make_room_for_an_import(tmp_path: Path, store: ModelStore) -> None:
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


@pytest.mark.parametrize("moment", ["found", "read"])
def test_image_removed_during_a_read_is_missing(
    moment: str, store: ModelStore, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = image.parse(store.read_manifest(built.digest)).config.digest
    find, read = Path.is_file, Path.read_bytes

    def removed() -> None:
        monkeypatch.undo()
        assert store.remove(built.digest)

    def find_then_remove(path: Path) -> bool:
        is_file = find(path)
        removed()
        return is_file

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


def test_catalog_drops_a_removed_image(store: ModelStore, built: Built) -> None:
    catalog = Catalog(store.root / "trees")
    reference = weakref.ref(catalog.image(built.digest))
    assert catalog.digests() == [built.digest]
    assert reference() is not None
    assert store.remove(built.digest)
    assert catalog.digests() == []
    gc.collect()
    assert reference() is None


def concurrently(*operations: Callable[[], object]) -> list[object]:
    """Run all at the same time; an error of one of them is its result."""
    results: list[object] = [None] * len(operations)
    gate = threading.Barrier(len(operations))

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = operations[number]()
        except errors.SlipwayError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(operations))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_concurrent_pin_and_eviction_leave_a_pinned_image_or_none(
    store: ModelStore, built: Built, tmp_path: Path
) -> None:
    registry = ModelStore(tmp_path / "registry")
    carry(store, registry, built.digest)
    for _ in range(12):
        carry(registry, store, built.digest, origin=ORIGIN)
        second_store = ModelStore(store.root)
        pinned, evicted = concurrently(
            lambda: store.pin(built.digest, "pod/a"),
            lambda: second_store.evict(0),  # noqa: B023 called in this iteration
        )
        if isinstance(pinned, errors.Permanent):
            assert pinned.reason == "ImageMissing"
            assert (evicted, store.has(built.digest)) == ([built.digest], False)
        else:
            assert (evicted, store.pins(built.digest)) == ([], {"pod/a"})
            assert store.verify(built.digest) == built.files
        store.unpin(built.digest, "pod/a")


def test_concurrent_captures_and_evictions_lose_no_image_without_an_origin(
    store: ModelStore, tmp_path: Path
) -> None:
    outs = [write_trained(tmp_path / f"out-{seed}", seed=seed) for seed in (5, 6)]
    for _ in range(4):
        removable = several(store, tmp_path / os.urandom(4).hex(), 1)
        operations = [lambda out=out: built_in(ModelStore(store.root), out) for out in (*outs, *outs)]
        *captured, _ = concurrently(*operations, lambda: store.evict(0))
        assert all(isinstance(built, Built) for built in captured)
        for built in captured:
            assert store.verify(built.digest, deep=True) == built.files
            assert len(store.referrers(built.digest)) == 2
        assert not store.has(removable[0])
        for built in captured:
            store.remove(built.digest)
    assert not list((store.root / "tmp").iterdir())
