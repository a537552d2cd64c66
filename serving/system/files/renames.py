"""Renames by renameat2(2): that replace nothing, or exchange two paths."""

import ctypes
import errno
import os
from pathlib import Path

_CURRENT_DIRECTORY = -100
"""AT_FDCWD."""
_NOREPLACE, _EXCHANGE = 1, 2
# EPERM is also a filter of system calls that does not know the call.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
_libc = ctypes.CDLL(None, use_errno=True)


def rename_new(old: str, new: str, directory: int) -> None:
    """Rename an entry of an open directory, unless it has one of the new name.

    Raises:
        FileExistsError: the new name exists.
        OSError: as `os.rename`; EINVAL, the file system has no such renames.
    """
    _rename(old, new, directory, _NOREPLACE)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths atomically; return False where the file system or the C library cannot."""
    if not hasattr(_libc, "renameat2"):
        return False
    try:
        _rename(str(first), str(second), _CURRENT_DIRECTORY, _EXCHANGE)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


def _rename(old: str, new: str, directory: int, flags: int) -> None:
    """Rename an entry of an open directory, as the flags say."""
    if _libc.renameat2(directory, os.fsencode(old), directory, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old, None, new)
