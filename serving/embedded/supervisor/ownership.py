"""Checks that no other user can replace the data directory or its entries: programs, sockets and keys."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from serving import errors

_MOST_LINKS = 40
"""Symbolic links of one path, as Linux allows (path_resolution(7)): another user may make a loop."""


def restrict_to_owner(root: Path) -> None:
    """Check the owners of the directory, its parents and its entries, and take permissions from all others.

    The rules for parents are those of OpenSSH's StrictModes, except that a group may write, and that all may
    write in a sticky directory, where only an entry's owner can replace it. A directory that is refused keeps
    its mode.

    Raises:
        errors.UserError: another user owns one of them, or may write in one of them.
        OSError: the directory cannot be read or changed.
    """
    _check_path(root)
    directory = root.resolve()
    _check_mode(directory, stat.S_IWOTH)  # even if it is sticky, which `_check_path` accepts
    _check_entries(directory)
    directory.chmod(0o700)
    _check_entries(directory)  # a member of the group may have added one before `chmod`


def _check_entries(directory: Path) -> None:
    """Check each entry of the directory, and the path that a symbolic link leads to.

    The mode of the directory alone does not protect its entries: another user's process may already have an
    entry open, or have one as its working directory.
    """
    for entry in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a component removes its own
            _check_path(entry)
            _check_mode(entry.resolve(), stat.S_IWOTH | stat.S_IWGRP)


def _check_path(path: Path) -> None:
    for step in _resolution(path):
        _check_owner(step)
        if not _is_sticky_directory(step):
            _check_mode(step, stat.S_IWOTH)


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
            current = Path(os.path.realpath(entry))  # no link is left: this resolves `..` only


def _check_owner(path: Path) -> None:
    owner, user = path.lstat().st_uid, os.geteuid()
    if owner not in (user, 0):
        raise errors.UserError(
            f"{path} must belong to user {user}, got user {owner}; choose another with --data-dir"
        )


def _check_mode(path: Path, refused: int) -> None:
    """Refuse a directory or a regular file with one of these permission bits."""
    mode = path.lstat().st_mode
    if mode & refused and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        classes = "go" if refused & stat.S_IWGRP else "o"
        raise errors.UserError(
            f"{path} must not be writable by other users, got mode {stat.S_IMODE(mode):04o}; "
            f"run `chmod {classes}-w {path}`, or choose another with --data-dir"
        )


def _is_sticky_directory(path: Path) -> bool:
    mode = path.lstat().st_mode
    return bool(stat.S_ISDIR(mode) and mode & stat.S_ISVTX)
