"""Checks that no other user can replace the data directory or its entries: programs, sockets and keys."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from serving import errors


def close_to_others(root: Path) -> None:
    """Take the directory's permissions from others, and check its owners and those of its parents and entries.

    The rules for parents are those of OpenSSH's StrictModes, except that a group may write.

    Raises:
        errors.UserError: another user owns one of them, or may write in one of them.
        OSError: the directory cannot be read or changed.
    """
    *parents, directory = _resolution(root)
    for path in parents:
        _check_owner(path)
        _check_mode(path)
    _check_owner(directory)
    directory.chmod(0o700)
    for entry in directory.iterdir():  # after the change of the mode: no entry is added behind this check
        _check_owner(entry)
        _check_mode(entry)


def _resolution(path: Path) -> Iterator[Path]:
    """Yield each directory and each symbolic link from `/` to an existing path, as the kernel follows them."""
    current, parts = Path("/"), list(path.absolute().parts[1:])
    yield current
    while parts:
        entry = current / parts.pop(0)
        yield entry
        if entry.is_symlink():
            target = entry.readlink()
            parts[:0] = target.parts[1:] if target.is_absolute() else target.parts
            current = Path("/") if target.is_absolute() else current
        else:
            current = Path(os.path.realpath(entry))  # `..` of a path without links


def _check_owner(path: Path) -> None:
    owner, user = path.lstat().st_uid, os.geteuid()
    if owner not in (user, 0):
        raise errors.UserError(
            f"{path} must belong to user {user}, got user {owner}; choose another with --data-dir"
        )


def _check_mode(path: Path) -> None:
    status = path.lstat()
    others_write = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH
    if others_write and not status.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(status.st_mode)
        raise errors.UserError(
            f"{path} must not be writable by other users, got mode {mode:04o}; "
            f"run `chmod o-w {path}`, or choose another with --data-dir"
        )
