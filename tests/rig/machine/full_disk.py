"""A small file system that tests fill up."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_file_system(path: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs with these options at `path` during the block; skip the test without the right to."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small tmpfs")
    path.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=0755,{options}", "tmpfs", path], check=False
    ).returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here with {options}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def fill(directory: Path, free: int) -> Path:
    """Fill the file system of a directory except for `free` bytes; return the file that fills it."""
    ballast = directory / "ballast"
    ballast.unlink(missing_ok=True)
    file_system = os.statvfs(directory)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, file_system.f_bavail * file_system.f_frsize - free)
    return ballast


def top_up(ballast: Path) -> None:
    """Take all that is free, while other processes may write too."""
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
