"""Renames that replace nothing: renameat2(2)."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_NOREPLACE = 1


def rename_new(old: str, new: str, directory: int) -> None:
    """Rename an entry of an open directory, unless it has one of the new name.

    Raises:
        FileExistsError: the new name exists.
        OSError: as `os.rename`; EINVAL, the file system has no such renames.
    """
    if _libc.renameat2(directory, os.fsencode(old), directory, os.fsencode(new), _NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old, None, new)
