"""Removes directories that other programs have filled: of any depth, without following links."""

import contextlib
import itertools
import logging
import os
import secrets
import stat
from pathlib import Path

log = logging.getLogger(__name__)

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it; what cannot be removed remains, and is logged.

    A program may have made directories that their owner may not write, such as a copy of a sealed model:
    an ordinary user's processes have to change their modes first.

    `shutil.rmtree` recurses, and has a descriptor open for each level: a program that makes a thousand levels
    stops it. Here each inner directory is moved to the top before it is emptied, so there are two levels at a
    time.
    """
    try:
        _allow_owner(path)
        root = os.open(path, _DIRECTORY)
        try:
            _empty(root)
        finally:
            os.close(root)
        path.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error.strerror)


def _empty(root: int) -> None:
    prefix, numbers = secrets.token_hex(8), itertools.count()
    pending = _remove_files(root)
    while pending:
        name = pending.pop()
        with contextlib.suppress(OSError):
            directory = os.open(name, _DIRECTORY, dir_fd=root)
            try:
                for inner in _remove_files(directory):
                    moved = f"{prefix}-{next(numbers)}"
                    with contextlib.suppress(OSError):
                        os.rename(inner, moved, src_dir_fd=directory, dst_dir_fd=root)
                        pending.append(moved)
            finally:
                os.close(directory)
            os.rmdir(name, dir_fd=root)


def _remove_files(directory: int) -> list[str]:
    """Remove everything but directories; return their names, once their owner may move and empty them."""
    with os.scandir(directory) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_directory in entries:
        with contextlib.suppress(OSError):
            if is_directory:
                _allow_owner(name, directory)
            else:
                os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in entries if is_directory]


def _allow_owner(directory: str | Path, parent: int | None = None) -> None:
    """Let this user read, write and enter a directory of theirs; a link in its place is not followed."""
    descriptor = os.open(directory, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # fchmod(2) refuses a descriptor of O_PATH, which alone opens a directory of any mode.
            Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
    finally:
        os.close(descriptor)
