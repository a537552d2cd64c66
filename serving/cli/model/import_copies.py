"""The copies of directories that `slipway model import` makes; a running import holds a lock on its copy.

A copy is `DIR/imports/NAMESPACE/VERSION`. The controllers build the image of the ModelVersion from it.
"""

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
from serving.system.files import locks

if TYPE_CHECKING:
    from serving.kube import Kube

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def create(copy: Path) -> int:
    """Make the directory of a copy, and lock it; return the descriptor, whose closing releases the lock.

    Raises:
        FileExistsError: there is one already.
    """
    while True:
        copy.mkdir(parents=True, mode=0o700)
        # Another import's `sweep` may lock and remove the directory before it is locked here: then try again.
        with suppress(FileNotFoundError):
            fd = os.open(copy, _DIRECTORY)
            locks.lock_descriptor(fd)
            if _is_same_directory(copy, fd):
                return fd
            os.close(fd)


def _is_same_directory(copy: Path, fd: int) -> bool:
    """Whether `copy` is the directory that `fd` has open: the path may be gone, or name a new directory."""
    try:
        return os.path.samestat(copy.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


async def sweep(kube: "Kube", where: DataDir) -> None:
    """Remove the copies of finished and deleted versions; running imports and builds keep theirs.

    The order matters: first the lock, then the version. An import creates the version before it releases the
    lock, so a copy that can be locked, and has no version, is needed no more.
    """
    for copy in where.imports.glob("*/*"):
        with _abandoned(copy) as is_abandoned:
            if is_abandoned and await _is_over(kube, copy):
                shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def _abandoned(copy: Path) -> Iterator[bool]:
    """Lock the copy during the block, and yield True; yield False if it cannot be locked.

    It cannot while its import runs, and if it is gone or another user's.
    """
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
    """Whether the version of the copy is finished or does not exist."""
    try:
        return is_finished(await kube.get(kinds.MODEL_VERSION, copy.parent.name, copy.name))
    except (errors.NotFound, errors.Invalid):  # invalid: no version can have the name
        return True
