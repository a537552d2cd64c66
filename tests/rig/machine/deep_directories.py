"""Directories that are deeper than a recursion may go."""

import os
from pathlib import Path

DEEP = 3000
"""Levels; Python's recursion ends at a third of it."""


def make_deep(directory: Path) -> None:
    """Make a chain of directories with a file in the last; its path is too long for the kernel."""
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
