"""A disk that fills up during a change: the error has the reason, and no partial image remains."""

import contextlib
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from serving import errors
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from tests.objects.models.model_images import carry, foreign, member, tar_of, write_trained
from tests.rig.machine.full_disk import fill, small_file_system

ROOT = Path(__file__).parents[3]
STEP = 256 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", "size=8m,nr_inodes=300") as path:
        yield path


def use_up_names(small: Path) -> None:
    """Use up all inodes."""
    with contextlib.suppress(OSError):
        for number in range(1000):
            (small / f"name-{number}").touch()


@pytest.mark.parametrize("operation", ["capture", "zstd", "import"])
def test_full_disk_at_any_point_leaves_no_partial_image(operation: str, small: Path, tmp_path: Path) -> None:
    out = write_trained(tmp_path / "out", big=2_500_000)
    registry = ModelStore(tmp_path / "registry")
    built = build_image(out, registry, repository="r", lineage={})
    store = ModelStore(small / "store")
    operations: dict[str, Callable[[], object]] = {
        "capture": lambda: build_image(out, store, repository="r", lineage={}),
        "zstd": lambda: build_image(out, store, repository="r", lineage={}, compression="zstd"),
        "import": lambda: carry(registry, store, built.digest),
    }
    initial_paths = {path for path in store.root.rglob("*") if path.name != "lock"}
    fits = []
    reasons = set()
    for free in [4096 * pages for pages in range(12)] + [STEP * n for n in range(1, 16)]:
        ballast = fill(small, free)
        try:
            operations[operation]()
        except errors.Temporary as error:
            reasons.add(error.reason)
            assert {path for path in store.root.rglob("*") if path.name != "lock"} == initial_paths
            fits.append(False)
        else:
            (digest,) = store.images()
            store.verify(digest, deep=True)
            assert store.remove(digest)
            fits.append(True)
        ballast.unlink()
    assert fits == sorted(fits)
    assert set(fits) == {False, True}
    assert reasons == {"DiskFull"}


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_no_layer_is_unpacked_when_the_disk_has_no_room_for_all(
    compression: Literal["none", "zstd", "gzip"], small: Path, tmp_path: Path
) -> None:
    """The layers of the others' image are listed with the sizes of their blobs alone."""
    registry = ModelStore(tmp_path / "registry")
    if compression == "gzip":
        data = random.Random(1).randbytes(2_500_000)
        foreign_image = foreign(tar_of([member("models/w", data)]), compression=compression)
        foreign_image.bring(registry)
        manifest, needed = registry.read_manifest(foreign_image.digest), len(data)
    else:
        out = write_trained(tmp_path / "out", big=2_500_000)
        built = build_image(out, registry, repository="r", lineage={}, compression=compression)
        manifest, needed = registry.read_manifest(built.digest), 2_500_000
    store = ModelStore(small / "store")
    fill(small, needed)
    entered = False
    with pytest.raises(errors.Temporary, match="bytes are needed") as raised, store.importing(manifest):
        entered = True
    assert raised.value.reason == "DiskFull"
    assert not entered


def test_image_with_an_origin_is_evicted_from_a_full_disk(small: Path, tmp_path: Path) -> None:
    store = ModelStore(small / "store")
    built = build_image(write_trained(tmp_path / "out"), store, repository="r", lineage={})
    store.set_origin(built.digest, "registry.example/m")
    fill(small, 0)
    use_up_names(small)
    reopened = ModelStore(store.root)
    assert reopened.verify(built.digest, deep=True) == built.files
    with pytest.raises(errors.Temporary, match="full"):
        reopened.pin(built.digest, "pod/a")
    assert reopened.evict(0) == [built.digest]
    assert reopened.size() == 0


def test_file_size_limit_is_reported_as_a_full_disk(tmp_path: Path) -> None:
    out = write_trained(tmp_path / "out", big=6_000_000)
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from serving import errors; from serving.images.building.model_image import build_image\n"
        "from serving.images.store.model_store import ModelStore\n"
        "store = ModelStore(Path(sys.argv[2]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))\n"
        "try: print(build_image(Path(sys.argv[1]), store, repository='r', lineage={}).digest)\n"
        "except errors.Temporary as error: print(error.reason)"
    )
    store = ModelStore(tmp_path / "store")
    for limit, prefix in [
        (1000, "DiskFull"),
        (1_000_000, "DiskFull"),
        (5_000_001, "DiskFull"),
        (resource.RLIM_INFINITY, "sha256:"),
    ]:
        completed = subprocess.run(
            [sys.executable, "-c", program, out, store.root, str(limit)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert completed.stdout.startswith(prefix), limit
        assert len(store.images()) == (prefix != "DiskFull")
        assert not list((store.root / "tmp").iterdir())
    assert store.verify(completed.stdout.strip(), deep=True)
