"""Removes directories that other programs have filled: of any depth, without following links."""

import contextlib
import itertools
import os
import secrets
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it; files that cannot be removed remain.

    `shutil.rmtree` recurses, and has a descriptor open for each level: a program that makes a thousand levels
    stops it. Here each inner directory is moved to the top before it is emptied, so there are two levels at a
    time.
    """
    with contextlib.suppress(OSError):
        root = os.open(path, _DIRECTORY)
        try:
            _empty(root)
        finally:
            os.close(root)
        path.rmdir()


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
    """Remove everything but directories; return their names."""
    with os.scandir(directory) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_directory in entries:
        if not is_directory:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in entries if is_directory]
