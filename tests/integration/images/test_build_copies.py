"""A build writes all bytes in order, however slow a thread is, with and without direct writes."""

import contextlib
import errno
import mmap
import os
import time
from pathlib import Path

import pytest

from serving import errors
from serving.images.building import packing
from serving.images.building.model_image import build_image
from serving.images.store import disk
from serving.images.store.model_store import ModelStore

PAGE = mmap.PAGESIZE


def buffer(data: bytes) -> memoryview:
    """Return the bytes in page-aligned memory, for direct writes."""
    area = mmap.mmap(-1, max(len(data), 1))
    area[: len(data)] = data
    return memoryview(area)[: len(data)]


def copied(path: Path, *parts: bytes, direct: bool = True) -> bytes:
    with contextlib.closing(disk.NewFile(path, sum(map(len, parts)), direct=direct)) as copy:
        offset = 0
        for part in parts:
            copy.write(buffer(part), offset)
            offset += len(part)
        copy.finish()
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE, 5 * PAGE + 511])
@pytest.mark.parametrize("mode", ["direct", "through the cache"])
def test_every_byte_is_written_for_any_size(mode: str, size: int, tmp_path: Path) -> None:
    head, tail = os.urandom(3 * PAGE), os.urandom(size)
    assert copied(tmp_path / "f", head, tail, direct=mode == "direct") == head + tail


def test_buffered_writes_are_used_when_the_open_refuses_direct_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.open

    def picky(path, flags, *args, **kwargs):
        fd = original(path, flags & ~os.O_DIRECT, *args, **kwargs)
        if flags & os.O_DIRECT:
            os.close(fd)
            raise OSError(errno.EINVAL, "Invalid argument")
        return fd

    monkeypatch.setattr(os, "open", picky)
    data = os.urandom(3 * PAGE)
    assert copied(tmp_path / "f", data) == data


@pytest.mark.parametrize("outcome", ["refused", "short"])
def test_refused_or_short_direct_write_is_completed_by_buffered_ones(
    outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.pwrite

    def failing_write(fd: int, data: memoryview, at: int) -> int:
        monkeypatch.setattr(os, "pwrite", original)
        if outcome == "refused":
            raise OSError(errno.EINVAL, "Invalid argument")
        return original(fd, data[:PAGE], at)

    monkeypatch.setattr(os, "pwrite", failing_write)
    data = os.urandom(3 * PAGE + 7)
    assert copied(tmp_path / "f", data, data[:10]) == data + data[:10]


@pytest.mark.parametrize("direct", [True, False])
def test_a_build_reserves_nothing_when_its_files_exceed_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, direct: bool
) -> None:
    """Sparse files claim any size. Each of these two would fit, if it were the only one."""
    out = tmp_path / "out"
    out.mkdir()
    file_system = os.statvfs(tmp_path)
    for name in ("a.safetensors", "b.safetensors"):
        (out / name).touch()
        os.truncate(out / name, file_system.f_bavail * file_system.f_frsize * 2 // 3)
    reserved: list[int] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, at, size: reserved.append(size))
    if not direct:
        monkeypatch.delattr(os, "O_DIRECT")
    with pytest.raises(errors.Temporary, match="bytes are needed") as full:
        build_image(out, ModelStore(tmp_path / "store"), repository="r", lineage={})
    assert (full.value.reason, full.value.retry_after) == ("DiskFull", 30.0)
    assert not reserved


def test_a_file_larger_than_the_free_space_reserves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, at, size: reserved.append(size))
    file_system = os.statvfs(tmp_path)
    with pytest.raises(errors.Temporary, match="bytes are needed"):
        disk.NewFile(tmp_path / "f", file_system.f_blocks * file_system.f_frsize, direct=True)
    assert not reserved


def test_disk_error_is_raised_and_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, data: memoryview, at: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(OSError, match="Input/output"):
        copied(tmp_path / "f", os.urandom(PAGE))


@pytest.mark.parametrize("slow", ["_layer_pool", "_file_pool", "_write_pool"])
def test_slow_thread_still_gets_every_chunk(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_CHUNK", PAGE)
    original = packing._Packer._next_buffer

    def lagging(self: packing._Packer) -> packing._Buffer:
        for _ in range(packing._WRITERS if slow == "_write_pool" else 1):
            getattr(self, slow).submit(time.sleep, 0.001)
        return original(self)

    monkeypatch.setattr(packing._Packer, "_next_buffer", lagging)
    out = tmp_path / "out"
    out.mkdir()
    for i in range(3):
        (out / f"w{i}").write_bytes(os.urandom(30 * PAGE + i))
    store = ModelStore(tmp_path / "store")
    built = build_image(out, store, repository="r", lineage={})
    assert {file.path: file.digest for file in built.files} == {
        path.name: disk.file_digest(path) for path in out.iterdir()
    }
    store.verify(built.digest, deep=True)
    second_store = ModelStore(tmp_path / "other")
    monkeypatch.undo()
    assert build_image(out, second_store, repository="r", lineage={}).digest == built.digest
