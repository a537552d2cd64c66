"""Brings an image's files into the page cache before anybody waits for them: a capture writes past it.

Replicas map the same files, so that one reading is for all of them.
"""

import os
from pathlib import Path

from serving.images.store import disk

_MEMINFO = Path("/proc/meminfo")


def available() -> int | None:
    """Return the bytes of memory that can be had without paging, None where the system does not say."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def warm(tree: Path, share: float) -> int:
    """Have the kernel read a tree's files; returns their bytes, 0 where that would take too much of the
    memory.

    Args:
        tree: of an image; one that vanishes meanwhile is no error.
        share: of the available memory, which the tree may take at most.
    """
    total = disk.size(tree)
    limit = available()
    if limit is not None and total > share * limit:
        return 0
    for directory, _, names in os.walk(tree):
        for name in names:
            _read_ahead(Path(directory, name))
    return total


def _read_ahead(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(fd)
