"""Disk operations of the store: synced writes, atomic replacement, read-only trees."""

import errno
import fcntl
import hashlib
import logging
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from serving import errors
from serving.system.files import atomic_file

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SPARE_BYTES = 64 * 1024 * 1024
"""Free bytes that `require_room` keeps for the API's database and for logs."""
_SPARE_SHARE = 100
"""Divisor: of a small file system only a hundredth is kept free, not `_SPARE_BYTES`."""
_RETRY_SECONDS = 30.0
"""Pause before the next attempt on a full disk."""


@dataclass(frozen=True)
class FileStamp:
    """The result of `stat` for a file; any write to the file changes one of the values."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """Return the stamp in a stat result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def full_disk_mapped() -> Iterator[None]:
    """Map an OSError of a full disk to errors.Temporary.

    Raises:
        errors.Temporary: `DiskFull`.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise errors.Temporary(
            "DiskFull", f"the disk for the model's files is full: {error}", retry_after=_RETRY_SECONDS
        ) from error


@contextmanager
def failures_mapped() -> Iterator[None]:
    """Map each OSError to errors.Temporary, as an attempt without a reason would be repeated for ever.

    The requests to registries map theirs before; a TimeoutError here is of a disk on a network.

    Raises:
        errors.Temporary: `DiskFull`, `StoreFailed`.
    """
    try:
        with full_disk_mapped():
            yield
    except OSError as error:
        log.exception("the model store cannot be read or written")
        raise errors.Temporary("StoreFailed", f"the model store: {error}") from error


def require_room(at: Path | int, size: int) -> None:
    """Check that the file system of a path or descriptor has `size` bytes free, and spare ones beside.

    Called before anything is written, as a size can be a mere claim: a sparse file of terabytes costs its
    writer nothing.

    Raises:
        errors.Temporary: `DiskFull`; nothing was reserved.
    """
    status = os.statvfs(at)
    spare = min(_SPARE_BYTES, status.f_blocks * status.f_frsize // _SPARE_SHARE)
    room = max(status.f_bavail * status.f_frsize - spare, 0)
    if size > room:
        raise errors.Temporary(
            "DiskFull",
            f"the disk for the model's files is full: {size} bytes are needed, {room} are free",
            retry_after=_RETRY_SECONDS,
        )


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all bytes: a write may be short on a nearly full disk; the next one then raises ENOSPC."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class NewFile:
    """A new file that several threads write, a large one with direct IO where the file system supports it.

    Direct IO spares the copy to the page cache, its writeback at the end, and the cached pages of others.
    Blocks are reserved first: otherwise a write that extends the file would wait for the one before. Linux
    only.
    """

    def __init__(self, path: Path, size: int, *, direct: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._direct = direct and hasattr(os, "O_DIRECT")
        try:
            self._fd = os.open(path, flags | (os.O_DIRECT if self._direct else 0), 0o600)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
            # open(2): some file systems create the file and then refuse the flag.
            path.unlink(missing_ok=True)
            self._direct = False
            self._fd = os.open(path, flags, 0o600)
        self._file = os.fdopen(self._fd, "wb", buffering=0)
        if self._direct and size:
            self._reserve(size)

    def finish(self) -> None:
        """Sync and close the file."""
        os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        """Close the file, finished or not. Repeating it is a no-op."""
        self._file.close()

    def write(self, data: memoryview, at: int) -> None:
        """Write bytes at an offset.

        The offset and the address of `data` in memory are multiples of the page size; so is its length, but
        at the file's end.
        """
        full_pages = len(data) - len(data) % mmap.PAGESIZE
        if self._direct and full_pages:
            try:
                count = os.pwrite(self._fd, data[:full_pages], at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                data, at = data[count:], at + count
        if self._direct and data:
            # The end of the file, a short write on a nearly full disk, or a device with larger blocks.
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            self._direct = False
        while data:
            count = os.pwrite(self._fd, data, at)
            data, at = data[count:], at + count

    def _reserve(self, size: int) -> None:
        """Reserve the file's blocks where the file system can; close the file if the disk has no room."""
        try:
            require_room(self._fd, size)
            os.posix_fallocate(self._fd, 0, size)
        except errors.Temporary:
            self.close()
            raise
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                self.close()
                raise


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and sync it."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes, tmp: Path) -> None:
    """Replace a read-only file atomically; the new one survives a power cut. `tmp` is on the same file
    system.
    """
    atomic_file.replace(path, data, mode=0o444, synced=True, tmp=tmp)
    atomic_file.sync_directory(path.parent)


def freeze(tree: Path) -> None:
    """Make every file 0444 and every directory 0555, and sync the directories."""
    for directory, _, names in os.walk(tree, topdown=False):
        for name in names:
            Path(directory, name).chmod(0o444)
        atomic_file.sync_directory(Path(directory))
        Path(directory).chmod(0o555)


def stat_tree(tree: Path) -> dict[str, FileStamp]:
    """Return the stamp of each file, by path relative to the tree; links are files, and not followed."""
    paths = (
        Path(directory, name)
        for directory, directories, names in os.walk(tree)
        # `os.walk` lists a link to a directory among the directories, and does not follow it.
        for name in (*names, *(name for name in directories if Path(directory, name).is_symlink()))
    )
    return {str(path.relative_to(tree)): FileStamp.of(path.lstat()) for path in paths}


def size(directory: Path) -> int:
    """Return the bytes of the files below a directory, without files that are removed meanwhile."""
    total = 0
    for at, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(at, name).lstat().st_size
    return total


def remove_tree(path: Path) -> None:
    """Remove a tree whose directories may be read-only, and which others may be removing too."""
    for directory, _, _ in os.walk(path):
        with suppress(FileNotFoundError):
            Path(directory).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def file_digest(path: Path) -> str:
    """Return `sha256:<hex>` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
