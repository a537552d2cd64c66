"""File locks (flock), which end with the process that holds them. Imports little, as `atomic_file`."""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False  # type checkers take it as true; `typing` costs memory in every container shim
if TYPE_CHECKING:
    Path = str | os.PathLike[str]


def try_lock(path: Path) -> int | None:
    """Lock a file, created if missing; return its descriptor, or None while another process holds the lock.

    The lock lasts until the descriptor is closed or the process ends. Forks inherit it; executed programs do
    not.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock_descriptor(fd):
        return fd
    os.close(fd)
    return None


def try_lock_descriptor(fd: int) -> bool:
    """Lock an open file or directory; False where another process holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_descriptor(fd: int) -> None:
    """Lock an open file or directory as soon as nobody else holds the lock."""
    fcntl.flock(fd, fcntl.LOCK_EX)
