"""Atomic replacement of files. Imports little: each container shim imports this, and each replica has one."""

from __future__ import annotations

import contextlib
import itertools
import os

TYPE_CHECKING = False  # as type checkers read it; `typing` costs memory in every container shim
if TYPE_CHECKING:
    from collections.abc import Iterator

    Path = str | os.PathLike[str]

_SERIAL = itertools.count()
"""Tells the temporary files of one process apart."""


def replace(
    path: Path, content: bytes, *, mode: int | None = None, synced: bool = False, tmp: Path | None = None
) -> None:
    """Replace a file atomically: a reader finds the old content or the new content, complete.

    Args:
        path: the file; its directory exists.
        content: the new content.
        mode: exact permissions, set before the file is visible; None: those of the process's umask.
        synced: whether the content is on the disk before it replaces the old one, so that a power cut leaves
            one of the two. The new content survives for certain only after `sync_directory`.
        tmp: directory for the temporary file, on the same file system; None is the directory of the file.
    """
    with replacing(path, tmp) as temporary:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        fd = os.open(temporary, flags, 0o666 if mode is None else mode)
        try:
            if mode is not None:
                os.fchmod(fd, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if synced:
                os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def replacing(path: Path, tmp: Path | None = None) -> Iterator[str]:
    """Yield the path of a temporary file, which replaces `path` when the block has written it.

    A block that fails leaves the old file. `tmp` is as for `replace`.
    """
    directory, name = os.path.split(os.fspath(path))
    directory = directory if tmp is None else os.fspath(tmp)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.{next(_SERIAL)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def sync_directory(path: Path) -> None:
    """Make the renames in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
