"""A disk that fills up at any point of a change: the reason is said, nothing half is there, and room helps."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.images.capture.build import capture
from serving.images.store.model_store import ModelStore
from tests.objects.model_images import carry, write_trained

ROOT = Path(__file__).parents[3]
STEP = 256 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    path = tmp_path / "small"
    path.mkdir()
    options = "size=8m,nr_inodes=300"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield path
    subprocess.run(["umount", path], check=True)


def fill(small: Path, free: int) -> Path:
    """Leave so many bytes."""
    ballast = small / "ballast"
    ballast.unlink(missing_ok=True)
    found = os.statvfs(small)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)
    return ballast


def use_up_names(small: Path) -> None:
    """Leave no room for a new file or directory, however small."""
    with contextlib.suppress(OSError):
        for number in range(1000):
            (small / f"name-{number}").touch()


@pytest.mark.parametrize("how", ["capture", "zstd", "import"])
def test_a_disk_that_fills_up_at_any_point_leaves_nothing(how: str, small: Path, tmp_path: Path) -> None:
    out = write_trained(tmp_path / "out", big=2_500_000)
    registry = ModelStore(tmp_path / "registry")
    built = capture(out, registry, repository="r", lineage={})
    store = ModelStore(small / "store")
    act: dict[str, Callable[[], object]] = {
        "capture": lambda: capture(out, store, repository="r", lineage={}),
        "zstd": lambda: capture(out, store, repository="r", lineage={}, compression="zstd"),
        "import": lambda: carry(registry, store, built.digest),
    }
    before = {path for path in store.root.rglob("*") if path.name != "lock"}
    fits = []
    reasons = set()
    for free in [4096 * pages for pages in range(12)] + [STEP * n for n in range(1, 16)]:
        ballast = fill(small, free)
        try:
            act[how]()
        except errors.Temporary as error:
            reasons.add(error.reason)
            assert {path for path in store.root.rglob("*") if path.name != "lock"} == before
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


def test_what_can_be_fetched_again_is_removed_from_a_full_disk(small: Path, tmp_path: Path) -> None:
    store = ModelStore(small / "store")
    built = capture(write_trained(tmp_path / "out"), store, repository="r", lineage={})
    store.set_origin(built.digest, "registry.example/m")
    fill(small, 0)
    use_up_names(small)
    again = ModelStore(store.root)
    assert again.verify(built.digest, deep=True) == built.files
    with pytest.raises(errors.Temporary, match="full"):
        again.pin(built.digest, "pod/a")
    assert again.evict(0) == [built.digest]
    assert again.size() == 0


def test_a_limit_on_files_is_a_full_disk_to_ordinary_users_too(tmp_path: Path) -> None:
    out = write_trained(tmp_path / "out", big=6_000_000)
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from serving import errors; from serving.images.capture.build import capture; from serving.images.store.model_store import ModelStore\n"
        "store = ModelStore(Path(sys.argv[2]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))\n"
        "try: print(capture(Path(sys.argv[1]), store, repository='r', lineage={}).digest)\n"
        "except errors.Temporary as error: print(error.reason)"
    )
    store = ModelStore(tmp_path / "store")
    for limit, says in [
        (1000, "DiskFull"),
        (1_000_000, "DiskFull"),
        (5_000_001, "DiskFull"),
        (resource.RLIM_INFINITY, "sha256:"),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", program, out, store.root, str(limit)], cwd=ROOT, capture_output=True, text=True, check=True
        )  # fmt: skip
        assert done.stdout.startswith(says), limit
        assert len(store.images()) == (says != "DiskFull")
        assert not list((store.root / "tmp").iterdir())
    assert store.verify(done.stdout.strip(), deep=True)
