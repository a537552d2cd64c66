"""Fetching from storages: fsspec's memory storage, and a driver that fails on request."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from serving import errors
from serving.controllers.models import storage_download

FILES = {"model.joblib": b"weights" * 1000, "deep/a.json": b"{}", "deep/b.json": b"[]"}


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """Counts reads; `before` may fail them."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    reads: ClassVar[list[str]] = []
    before: Callable[[str], None] = staticmethod(lambda path: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("flaky://", "memory://")))

    def get_file(self, rpath: str, lpath: str, **options: Any) -> None:
        type(self).before(rpath)
        self.reads.append(rpath.removeprefix("/bucket/digits/"))
        super().get_file(rpath, lpath, **options)


@pytest.fixture(autouse=True)
def bucket() -> Iterator[Flaky]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    files = Flaky()
    Flaky.store.clear()
    Flaky.reads.clear()
    Flaky.before = staticmethod(lambda path: None)
    for name, data in FILES.items():
        files.pipe(f"/bucket/digits/{name}", data)
    yield files
    Flaky.store.clear()


def fetch(into: Path) -> dict[str, bytes]:
    target = storage_download.fetch("flaky://bucket/digits", into, lambda words: None)
    return {str(p.relative_to(target)): p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}


def failing(path: str, error: Exception) -> Callable[[str], None]:
    def before(read_path: str) -> None:
        if read_path.endswith(path):
            raise error

    return staticmethod(before)


def test_all_files_are_fetched_and_progress_is_reported(tmp_path: Path) -> None:
    progress: list[str] = []
    target = storage_download.fetch("flaky://bucket/digits", tmp_path, progress.append)
    assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == set(FILES)
    assert progress[-1].startswith("fetched 0.0 MiB of 0.0 MiB")


def test_a_single_file_is_a_valid_source(tmp_path: Path) -> None:
    target = storage_download.fetch("flaky://bucket/digits/model.joblib", tmp_path, lambda words: None)
    assert [p.name for p in target.iterdir()] == ["model.joblib"]


def test_a_second_attempt_fetches_only_the_missing_files(tmp_path: Path) -> None:
    Flaky.before = failing("b.json", ConnectionResetError("cut"))
    with pytest.raises(errors.Temporary, match="cut") as raised:
        fetch(tmp_path)
    assert raised.value.reason == "SourceUnavailable"
    fetched = set(Flaky.reads)  # files fetched beside the one that failed
    Flaky.before = staticmethod(lambda path: None)
    assert fetch(tmp_path) == FILES
    assert all(Flaky.reads.count(name) == 1 for name in fetched), "fetched again"


def test_files_that_changed_between_two_attempts_are_fetched_again(tmp_path: Path, bucket: Flaky) -> None:
    assert fetch(tmp_path) == FILES
    bucket.pipe("/bucket/digits/model.joblib", b"others!" * 1000)
    bucket.rm("/bucket/digits/deep/b.json")
    assert fetch(tmp_path) == {"deep/a.json": b"{}", "model.joblib": b"others!" * 1000}
    assert Flaky.reads.count("deep/a.json") == 1


def test_files_that_change_during_the_fetch_are_a_temporary_error(tmp_path: Path, bucket: Flaky) -> None:
    def touch(path: str) -> None:
        if path.endswith("a.json"):
            bucket.pipe("/bucket/digits/model.joblib", b"others!" * 1000)

    Flaky.before = staticmethod(touch)
    with pytest.raises(errors.Temporary) as raised:
        fetch(tmp_path)
    assert raised.value.reason == "OutputStillChanging"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("no access"), "SourceForbidden"),
        (FileNotFoundError("went away"), "OutputStillChanging"),
        (RuntimeError("a client's own"), "SourceUnavailable"),
        (OSError(28, "No space left on device"), "DiskFull"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_error_of_a_driver_is_temporary_with_a_reason(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    Flaky.before = failing("model.joblib", error)
    with pytest.raises(errors.Temporary) as raised:
        fetch(tmp_path)
    assert raised.value.reason == reason


@pytest.mark.parametrize("name", ["../out", "deep/../../out", ".wh.x"])
def test_names_outside_the_target_are_refused(tmp_path: Path, bucket: Flaky, name: str) -> None:
    path = f"/bucket/digits/{name}"
    Flaky.store[path] = Flaky.store["/bucket/digits/model.joblib"]
    with pytest.raises(errors.Permanent) as raised:
        fetch(tmp_path / "in")
    assert raised.value.reason == "InvalidOutput"
    assert not (tmp_path / "out").exists()
