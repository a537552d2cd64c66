"""Reading a tree that somebody else wrote, and may still be writing, without being led out of it.

Every directory is opened relative to its parent without following links, so that a name that is swapped for a
link in between fails. Only directories and regular files with one name are taken.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from serving import errors
from serving.images.documents import layers

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_FILES = 10_000
"""Files in one model: each is listed in the manifest (4 MiB at most) and in the ModelVersion's status."""


@dataclass(frozen=True)
class Seen:
    """What `stat` said of a file; any write to it changes one of these."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Seen":
        """Take the four from a stat result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def opened(source: Path, within: Path | None) -> Iterator[int]:
    """Give a descriptor of the source directory.

    Args:
        source: an absolute directory.
        within: below this directory no component may be a link; None checks only the last component.

    Raises:
        errors.Permanent: `InvalidOutput`, not absolute, missing, a link, or not a directory.
    """
    base = within or source.parent
    if not source.is_absolute() or ".." in source.parts or not source.is_relative_to(base):
        raise errors.Permanent(
            "InvalidOutput", f"{source}: must be an absolute path below {base} without `..`"
        )
    at = source
    try:
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            at = base
            for part in source.relative_to(base).parts:
                at = at / part
                inner = os.open(part, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError) as error:
        rule = "is a link or not a directory" if at.is_symlink() or at.exists() else "does not exist"
        raise errors.Permanent("InvalidOutput", f"{at}: {rule}") from error


def walk(root: int) -> dict[str, Seen]:
    """Return every file below the descriptor by its relative path.

    Raises:
        errors.Permanent: `InvalidOutput` for links, devices, sockets, second names and names that are not UTF-8;
            `TooManyFiles`.
        errors.Temporary: `OutputStillChanging`, a directory vanished while it was read.
    """
    found: dict[str, Seen] = {}
    try:
        _walk(root, "", found, 0)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise still_changing(str(error.filename)) from error
    return found


def _walk(fd: int, prefix: str, found: dict[str, Seen], depth: int) -> None:
    if depth > layers.MAX_DEPTH:
        raise errors.Permanent("InvalidOutput", f"{prefix!r}: more than {layers.MAX_DEPTH} directories deep")
    with os.scandir(fd) as listing:
        names = sorted(entry.name for entry in listing)
    for name in names:
        path = f"{prefix}{name}"
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
            try:
                _walk(inner, f"{path}/", found, depth + 1)
            finally:
                os.close(inner)
            continue
        _check_file(path, status)
        found[path] = Seen.of(status)
        if len(found) > MAX_FILES:
            raise errors.Permanent("TooManyFiles", f"more than {MAX_FILES} files: pack small ones together")


def _check_file(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise errors.Permanent("InvalidOutput", f"{path!r}: is a symbolic link; write the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise errors.Permanent("InvalidOutput", f"{path!r}: is not a regular file")
    if status.st_nlink > 1:
        raise errors.Permanent(
            "InvalidOutput", f"{path!r}: has {status.st_nlink} names (hard links); copy it"
        )


@contextmanager
def reading(root: int, path: str, seen: Seen) -> Iterator[BinaryIO]:
    """Open a file of the walk for reading, and check before and after that it is the one that was seen.

    Raises:
        errors.Temporary: `OutputStillChanging`.
    """
    fds: list[int] = []
    try:
        fd = root
        *parents, name = path.split("/")
        for parent in parents:
            fd = os.open(parent, _DIRECTORY, dir_fd=fd)
            fds.append(fd)
        with os.fdopen(os.open(name, _FILE, dir_fd=fd), "rb", buffering=0) as file:
            _check_same(path, file.fileno(), seen)
            yield file
            _check_same(path, file.fileno(), seen)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise still_changing(path) from error
    finally:
        for fd in fds:
            os.close(fd)


def _check_same(path: str, fd: int, seen: Seen) -> None:
    if Seen.of(os.fstat(fd)) != seen:
        raise still_changing(path)


def still_changing(path: str) -> errors.Temporary:
    """Return the error for a file that is being written."""
    return errors.Temporary(
        "OutputStillChanging", f"{path!r} changed while it was being read", retry_after=2.0
    )
