"""Keeps modules importable when root is given up: an interpreter may lie in root's home, which nobody can enter.

Its directories are opened before, and found by their descriptors after; proc(5) lets a process through its own ones.
"""

import os
import sys
from pathlib import Path


def keep_reach() -> None:
    """Replace the directories that modules are looked for in by paths that need no right to come there."""
    doors = {entry: _door(entry) for entry in sys.path if Path(entry).is_dir()}
    sys.path[:] = [doors.get(entry, entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = [_through(path, doors) for path in paths]


def _door(directory: str) -> str:
    return f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}"


def _through(path: str, doors: dict[str, str]) -> str:
    """Return a package's path by the longest of the directories that it lies in."""
    inside = [entry for entry in doors if path.startswith(f"{entry}/")]
    if not inside:
        return path
    entry = max(inside, key=len)
    return doors[entry] + path[len(entry) :]
