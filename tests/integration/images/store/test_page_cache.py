"""Warming of the page cache, checked by mincore(2)."""

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from serving.images.store import page_cache

SIZE = 8 * 1024 * 1024


def resident(path: Path) -> int:
    """Return how many of a file's pages are in the page cache (mincore(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as area,
    ):
        vector = (ctypes.c_ubyte * (SIZE // mmap.PAGESIZE))()
        pointer = ctypes.c_char.from_buffer(area)
        address = ctypes.c_void_p(ctypes.addressof(pointer))
        assert libc.mincore(address, ctypes.c_size_t(SIZE), vector) == 0, os.strerror(ctypes.get_errno())
        del pointer
        return sum(page & 1 for page in vector)


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    file = tmp_path / "tree" / "models" / "weights"
    file.parent.mkdir(parents=True)
    file.write_bytes(os.urandom(SIZE))
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if resident(file):
        pytest.skip("this file system keeps its files in memory: nothing is ever cold")
    return file


def test_the_files_of_a_warmed_tree_are_in_the_page_cache(cold: Path) -> None:
    assert page_cache.warm(cold.parents[1], 1.0) >= SIZE
    deadline = time.monotonic() + 10  # the kernel reads behind the call's back
    while resident(cold) <= 0.9 * SIZE // mmap.PAGESIZE:
        assert time.monotonic() < deadline, f"{resident(cold)} pages"
        time.sleep(0.005)


def test_tree_larger_than_the_memory_share_is_not_warmed(cold: Path) -> None:
    assert page_cache.warm(cold.parents[1], 0.0) == 0
    assert resident(cold) == 0


def test_missing_tree_is_no_error(tmp_path: Path) -> None:
    assert page_cache.warm(tmp_path / "gone", 1.0) == 0
