"""Reads an image's files into the page cache before a replica waits for them.

Large files of an image that was built here are not in the cache: `disk.NewFile` writes them with direct IO.

Replicas map the same files, so one read serves all of them.
"""

import os
from pathlib import Path

from serving.images.store import disk
from serving.system import procfs


def warm(tree: Path, share: float) -> int:
    """Make the kernel read a tree's files; return their total bytes, 0 if they would take too much memory.

    Args:
        tree: of an image; it may be removed meanwhile.
        share: largest part of the available memory, from 0 to 1, that the tree may take.
    """
    total = disk.size(tree)
    available = procfs.available_memory()
    if available is not None and total > share * available:
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
