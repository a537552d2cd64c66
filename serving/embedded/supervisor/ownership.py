"""Checks that no other user can replace the data directory or its entries: programs, sockets and keys."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from serving import errors

_MOST_LINKS = 40
"""Symbolic links of one path, as Linux allows (path_resolution(7)): another user may change one meanwhile."""


def close_to_others(root: Path) -> None:
    """Check the owners of the directory, its parents and its entries, and take permissions from all others.

    The rules for parents are those of OpenSSH's StrictModes, except that a group may write. A directory that
    is refused keeps its mode.

    Raises:
        errors.UserError: another user owns one of them, or may write in one of them.
        OSError: the directory cannot be read or changed.
    """
    for path in _resolution(root):
        _check_owner(path)
        _check_mode(path)
    directory = root.resolve()
    _check_mode(directory, sticky_is_safe=False)
    _check_entries(directory)
    directory.chmod(0o700)
    _check_entries(directory)  # a member of its group may have added one meanwhile


def _check_entries(directory: Path) -> None:
    for entry in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a component removes its own
            _check_owner(entry)
            _check_mode(entry, sticky_is_safe=False)


def _resolution(path: Path) -> Iterator[Path]:
    """Yield each directory and symbolic link from `/` to an existing path, as the kernel follows them."""
    current, parts, links = Path("/"), list(path.absolute().parts[1:]), 0
    yield current
    while parts:
        entry = current / parts.pop(0)
        yield entry
        if entry.is_symlink():
            target = entry.readlink()
            links += 1
            if links > _MOST_LINKS:
                raise errors.UserError(f"{path} must have at most {_MOST_LINKS} symbolic links")
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


def _check_mode(path: Path, *, sticky_is_safe: bool = True) -> None:
    mode = path.lstat().st_mode
    others_write = stat.S_ISDIR(mode) and mode & stat.S_IWOTH
    if others_write and not (sticky_is_safe and mode & stat.S_ISVTX):
        mode = stat.S_IMODE(mode)
        raise errors.UserError(
            f"{path} must not be writable by other users, got mode {mode:04o}; "
            f"run `chmod o-w {path}`, or choose another with --data-dir"
        )
