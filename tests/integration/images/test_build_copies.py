"""How a build's bytes reach the disk: all of them and in order, however slow a thread and whatever the file system can."""

import errno
import mmap
import os
import time
from pathlib import Path

import pytest

from serving.images.capture import packing
from serving.images.capture.build import capture
from serving.images.store import disk
from serving.images.store.model_store import ModelStore

PAGE = mmap.PAGESIZE


def buffer(data: bytes) -> memoryview:
    """The bytes where direct writes can take them."""
    area = mmap.mmap(-1, max(len(data), 1))
    area[: len(data)] = data
    return memoryview(area)[: len(data)]


def copied(path: Path, *parts: bytes, direct: bool = True) -> bytes:
    copy = disk.NewFile(path, sum(map(len, parts)), direct=direct)
    at = 0
    for part in parts:
        copy.write(buffer(part), at)
        at += len(part)
    copy.finish()
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE, 5 * PAGE + 511])
@pytest.mark.parametrize("how", ["direct", "through the cache"])
def test_every_byte_arrives_whatever_the_size(how: str, size: int, tmp_path: Path) -> None:
    first, last = os.urandom(3 * PAGE), os.urandom(size)
    assert copied(tmp_path / "f", first, last, direct=how == "direct") == first + last


def test_a_file_system_that_refuses_direct_writes_at_the_open_gets_ordinary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def picky(path, flags, *args, **kwargs):
        fd = real(path, flags & ~os.O_DIRECT, *args, **kwargs)
        if flags & os.O_DIRECT:
            os.close(fd)
            raise OSError(errno.EINVAL, "Invalid argument")
        return fd

    monkeypatch.setattr(os, "open", picky)
    data = os.urandom(3 * PAGE)
    assert copied(tmp_path / "f", data) == data


@pytest.mark.parametrize("outcome", ["refused", "short"])
def test_a_direct_write_that_is_refused_or_short_is_finished_by_ordinary_ones(
    outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def once(fd: int, data: memoryview, at: int) -> int:
        monkeypatch.setattr(os, "pwrite", real)
        if outcome == "refused":
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, data[:PAGE], at)

    monkeypatch.setattr(os, "pwrite", once)
    data = os.urandom(3 * PAGE + 7)
    assert copied(tmp_path / "f", data, data[:10]) == data + data[:10]


def test_an_error_of_the_disk_is_not_taken_for_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, data: memoryview, at: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(OSError, match="Input/output"):
        copied(tmp_path / "f", os.urandom(PAGE))


@pytest.mark.parametrize("slow", ["_layer_pool", "_file_pool", "_write_pool"])
def test_a_thread_that_lags_behind_still_gets_what_was_read(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_CHUNK", PAGE)
    real = packing._Packer._fill

    def lagging(self: packing._Packer, *args) -> memoryview:
        for _ in range(packing._WRITERS if slow == "_write_pool" else 1):
            getattr(self, slow).submit(time.sleep, 0.001)
        return real(self, *args)

    monkeypatch.setattr(packing._Packer, "_fill", lagging)
    out = tmp_path / "out"
    out.mkdir()
    for i in range(3):
        (out / f"w{i}").write_bytes(os.urandom(30 * PAGE + i))
    store = ModelStore(tmp_path / "store")
    built = capture(out, store, repository="r", lineage={})
    assert {file.path: file.digest for file in built.files} == {
        path.name: disk.file_digest(path) for path in out.iterdir()
    }
    store.verify(built.digest, deep=True)
    other = ModelStore(tmp_path / "other")
    monkeypatch.undo()
    assert capture(out, other, repository="r", lineage={}).digest == built.digest
