"""Opens regular files at paths where another process may have put a link, a FIFO, a directory or a device.

No link is followed, and no open blocks. Imports little, as `atomic_file`.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # type checkers take it as true; `typing` costs memory in every container shim
if TYPE_CHECKING:
    from typing import BinaryIO

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_OTHER_TYPES = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""A link; a FIFO without a reader or a socket; a directory that is opened for writing."""


def open_fd(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    *,
    dir_fd: int | None = None,
) -> int:
    """Open a regular file, as `os.open` does.

    Raises:
        OSError: EINVAL, the file at the path is of another type; or as of `os.open`.
    """
    try:
        fd = os.open(path, flags | _FLAGS, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _OF_OTHER_TYPES:
            raise _other_type(path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _other_type(path)
    return fd


def _other_type(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; raises as `open_fd`."""
    return os.fdopen(open_fd(path), "rb")


def open_below(directory: str | os.PathLike[str], path: str) -> int:
    """Open a regular file for reading below a directory, and follow no link in any component of its path.

    Args:
        directory: a directory that its writers cannot replace.
        path: relative, without `..`.

    Raises:
        OSError: ENOTDIR, a component is a link or no directory; or as of `open_fd`.
    """
    *parents, name = path.split("/")
    fd = os.open(directory, _DIRECTORY)
    try:
        for parent in parents:
            inner = os.open(parent, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        return open_fd(name, dir_fd=fd)
    finally:
        os.close(fd)


def read_end(fd: int, limit: int) -> bytes:
    """Return the last `limit` bytes of an open file at most."""
    return os.pread(fd, limit, max(0, os.fstat(fd).st_size - limit))
