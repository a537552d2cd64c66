"""The page cache of files: dropped for a cold start, counted afterwards."""

import os
from collections.abc import Iterable
from pathlib import Path


def files(*roots: Path) -> list[Path]:
    return [path for root in roots for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def drop(paths: Iterable[Path]) -> None:
    """Take files out of the page cache; pages that a living process has mapped stay."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
