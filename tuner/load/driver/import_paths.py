"""Keeps modules importable after root is given up, even those below root's home.

Their directories are opened before and reached by descriptor afterwards (proc(5), /proc/self/fd).
"""

import os
import sys
from pathlib import Path


def keep_importable() -> None:
    """Replace the directories of modules by paths that need no search permission."""
    opened = {entry: _descriptor_path(entry) for entry in sys.path if Path(entry).is_dir()}
    sys.path[:] = [opened.get(entry, entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):  # a namespace package computes its paths from sys.path
            paths[:] = [_by_descriptor(path, opened) for path in paths]


def _descriptor_path(directory: str) -> str:
    return f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}"


def _by_descriptor(path: str, opened: dict[str, str]) -> str:
    """Return a package's path relative to the deepest opened directory that contains it."""
    inside = [entry for entry in opened if path.startswith(f"{entry}/")]
    if not inside:
        return path
    entry = max(inside, key=len)
    return opened[entry] + path[len(entry) :]
