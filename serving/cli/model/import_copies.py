"""The copies of directories that are being imported; a lock on each says that its import still runs."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from serving import errors
from serving.data_dir import DataDir
from serving.planning.models.version import is_finished
from serving.resources import kinds
from serving.system import locks

if TYPE_CHECKING:
    from serving.kube import Kube

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def create(copy: Path) -> int:
    """Make the directory of a copy, and lock it; return the descriptor, which keeps it until it is closed.

    Raises:
        FileExistsError: there is one already.
    """
    while True:
        copy.mkdir(parents=True, mode=0o700)
        # A sweep may take the directory before the lock is set; it then removes it, and the next one is ours.
        with suppress(FileNotFoundError):
            fd = os.open(copy, _DIRECTORY)
            locks.lock_descriptor(fd)
            if _is_at(copy, fd):
                return fd
            os.close(fd)


def _is_at(copy: Path, fd: int) -> bool:
    try:
        return os.path.samestat(copy.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


async def sweep(kube: "Kube", where: DataDir) -> None:
    """Remove copies of finished and deleted versions; an interrupted import leaves its copy to the build.

    A version is looked for only when its copy is locked: an import makes it before it releases the lock.
    """
    for copy in where.imports.glob("*/*"):
        with _abandoned(copy) as is_abandoned:
            if is_abandoned and await _is_over(kube, copy):
                shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def _abandoned(copy: Path) -> Iterator[bool]:
    """Lock a copy whose import has ended; False if it runs, or if the copy is gone or another user's."""
    try:
        fd = os.open(copy, _DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield locks.try_lock_descriptor(fd)
    finally:
        os.close(fd)


async def _is_over(kube: "Kube", copy: Path) -> bool:
    try:
        return is_finished(await kube.get(kinds.MODEL_VERSION, copy.parent.name, copy.name))
    except errors.NotFound:
        return True
