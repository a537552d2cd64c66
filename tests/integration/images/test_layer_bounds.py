"""A compressed layer unpacks to a bounded size, and a refused one leaves nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serving import errors
from serving.images.building import source
from serving.images.imports.image_import import Import
from serving.images.store.model_store import ModelStore
from serving.settings import StoreSettings
from tests.objects.models.model_images import ForeignImage, foreign, gzip_bomb, member, pieces, tar_of

MIB = 1024 * 1024


def files_in(store: ModelStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file() and path.name != "lock"]


def zstd_bomb(mebibytes: int) -> ForeignImage:
    return foreign(tar_of([member("models/zeros", bytes(mebibytes * MIB))]), compression="zstd")


@pytest.mark.parametrize("bomb_of", [gzip_bomb, zstd_bomb])
def test_a_layer_of_300_mib_that_unpacks_beyond_the_ratio_is_refused_and_leaves_nothing(
    bomb_of: Callable[[int], ForeignImage], store: ModelStore
) -> None:
    bomb = bomb_of(300)
    ((digest, blob),) = bomb.blobs.items()
    assert len(blob) < MIB
    with store.staging() as staging:
        arriving = Import(bomb.manifest, staging, StoreSettings())
        with pytest.raises(errors.Permanent, match=digest) as caught:
            arriving.add_layer(digest, pieces(blob))
        assert files_in(store) == [], "the part of the layer before the bound stays in the store"
    bound = max(int(len(blob) * StoreSettings().unpack_ratio), 16 * MIB)
    assert caught.value.reason == "InvalidImage"
    assert f"may unpack to {bound} bytes" in str(caught.value)
    assert list((store.root / "tmp").iterdir()) == []


def test_bytes_outside_of_models_count_too(store: ModelStore) -> None:
    bomb = foreign(
        tar_of([member("usr/zeros", bytes(20 * MIB)), member("models/a", b"1")]), compression="gzip"
    )
    with pytest.raises(errors.Permanent, match="may unpack to 16777216 bytes"):
        bomb.bring(store)


def test_a_small_layer_may_unpack_to_the_free_size_at_any_ratio(store: ModelStore) -> None:
    zeros = foreign(tar_of([member("models/zeros", bytes(15 * MIB))]), compression="gzip")
    zeros.bring(store)
    assert store.has(zeros.digest)


def test_a_higher_ratio_of_the_settings_accepts_the_layer(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "store", replace(StoreSettings(), unpack_ratio=2000.0))
    zeros = foreign(tar_of([member("models/zeros", bytes(40 * MIB))]), compression="gzip")
    zeros.bring(store)
    assert store.has(zeros.digest)


def test_many_small_layers_share_the_free_size(store: ModelStore) -> None:
    tars = [tar_of([member(f"models/{n}", bytes(4 * MIB))]) for n in range(8)]
    many = foreign(*tars, compression="gzip")
    with pytest.raises(errors.Permanent, match=f"may unpack to {16 * MIB // 8} bytes"):
        many.bring(store)
    assert files_in(store) == []


def test_the_layers_of_an_image_share_the_number_of_files(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 5)
    tars = [tar_of([member(f"models/{n}/{file}", b"1") for file in range(3)]) for n in range(2)]
    too_many = foreign(*tars, compression="gzip")
    with store.staging() as staging:
        arriving = Import(too_many.manifest, staging, StoreSettings())
        first, second = (layer.digest for layer in arriving.image.layers)
        blob, other = too_many.blobs[first], too_many.blobs[second]
        with pytest.raises(errors.Temporary, match="layer: must be"):
            arriving.add_layer(first, pieces(blob + b"x"))
        arriving.add_layer(first, pieces(blob))
        with pytest.raises(errors.Permanent, match="the image has more than 5 files") as caught:
            arriving.add_layer(second, pieces(other))
        assert caught.value.reason == "InvalidImage"
        assert len([path for path in files_in(store) if path.name in ("0", "1", "2")]) == 3
