"""Processes and file descriptors of this process, to find those that tests leave behind."""

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from serving.system import procfs

ENDING_SECONDS = 5.0
"""Longest wait for a process that has been signalled, and for a descriptor that a thread closes."""
POLL_SECONDS = 0.02

_shared: set[str] = set()
_shared_directories: set[bytes] = set()


@contextlib.contextmanager
def shared(directory: Path | None = None) -> Iterator[None]:
    """Except what the block starts, and processes that work in the directory: files of tests share them."""
    before = snapshot()
    if directory is not None:
        _shared_directories.add(os.fsencode(f"{directory}/"))
    try:
        yield
    finally:
        _shared.update(snapshot() - before)


def snapshot() -> set[str]:
    """Return the children, zombies included, and the descriptors; none where /proc is missing."""
    return {f"process {pid}" for pid in _children()} | set(_descriptors())


def since(before: set[str]) -> list[str]:
    """Return the children and descriptors that were not there before."""
    return sorted(_with_command(name) for name in snapshot() - before)


class FileOfTests:
    """What runs and is open before a file of tests, and after it."""

    def __init__(self, directory: Path) -> None:
        """`directory` has the temporary directories of the tests; orphans are known by it."""
        self._directory = os.fsencode(f"{directory}/")
        self._before = snapshot()
        self._processes = set(procfs.processes())

    def leaks(self) -> list[str]:
        """Return the new children, descriptors and orphans, once those that are ending have ended."""
        left = self._new()
        if left:
            gc.collect()  # an exception that a test has caught keeps the variables of its frames in a cycle
        deadline = time.monotonic() + ENDING_SECONDS
        while (left := left and self._new()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return sorted(_with_command(name) for name in left)

    def _new(self) -> set[str]:
        new = {f"process {pid}": _traces(pid) for pid in set(procfs.processes()) - self._processes}
        orphans = {name for name, traces in new.items() if self._directory in traces}
        of_shared = {
            name for name, traces in new.items() if any(path in traces for path in _shared_directories)
        }
        return (snapshot() | orphans) - of_shared - self._before - _shared - _of_multiprocessing()


def _traces(pid: int) -> bytes:
    """Return the command line, the variables and the directory of a process; empty without the right to."""
    process = Path(f"/proc/{pid}")
    try:
        texts = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        return b"\0".join((*texts, os.fsencode((process / "cwd").readlink())))
    except OSError:  # or it has ended
        return b""


def _of_multiprocessing() -> set[str]:
    """Return its two helpers, which run until this process ends, and its descriptors for them."""
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    helpers = ((tracker._pid, tracker._fd), (server._forkserver_pid, server._forkserver_alive_fd))
    running = [helper for helper in helpers if helper[0] is not None]
    ends = [f"descriptor {end}:" for _, end in running]
    return {
        *(f"process {pid}" for pid, _ in running),
        *(name for name in _descriptors() if name.startswith(tuple(ends))),
    }


def _with_command(name: str) -> str:
    pid = name.removeprefix("process ")
    try:
        return f"{name}: {Path(f'/proc/{pid}/cmdline').read_text().replace(chr(0), ' ').strip() or 'zombie'}"
    except OSError:
        return name


def _children() -> set[str]:
    """Return the process ids; read again if a thread has ended, as another one inherits its children."""
    while True:
        try:
            return {
                pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
            }
        except (FileNotFoundError, ProcessLookupError):
            continue


def _descriptors() -> list[str]:
    names = []
    for path in Path("/proc/self/fd").glob("*"):
        try:
            names.append(f"descriptor {path.name}: {path.readlink()}")
        except OSError:  # the one that lists the directory is closed
            continue
    return names
