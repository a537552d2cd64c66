"""Faults of the machine, as blocks: a full disk, a full process table, and a step of the wall clock."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from serving.router.envoy.process.binary import find_envoy
from serving.system.processes import ProcessIdentity

DISK_BYTES = 512 * 1024 * 1024
"""Of the small file system: the product with three arms takes a tenth of it."""
TOP_UP_SECONDS = 0.05
"""Between two attempts to fill what became free, or was written and removed."""
PAGE = bytes(4096)
_PIDS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Where a cgroup can limit processes: in version 1 and in version 2."""
_LIBRARIES = [
    Path(f"/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1") for machine in ("x86_64", "aarch64")
]
"""Where Debian's package `faketime` has its library for programs with threads."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """Make the folder a small file system of its own; yield why it is none, empty if it is."""
    if os.geteuid() != 0:
        yield "needs root, to mount a small file system"
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        yield "a small file system cannot be mounted here"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.asynccontextmanager
async def full_disk(folder: Path) -> AsyncIterator[None]:
    """Fill the file system of a folder, and keep it full while others write."""
    ballast = folder / "ballast"
    free = os.statvfs(folder)
    with ballast.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, (free.f_bavail - 16) * free.f_frsize)
        filling = asyncio.create_task(_fill(ballast))
        try:
            yield
        finally:
            filling.cancel()
            ballast.unlink()


async def _fill(ballast: Path) -> None:
    while True:
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while True:
                file.write(PAGE)
        await asyncio.sleep(TOP_UP_SECONDS)


def process_table_problem() -> str:
    """Return why the number of processes cannot be limited here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, to make a cgroup"
    return "" if _pids_root() else "no cgroup limits the number of processes here"


def _pids_root() -> Path | None:
    for root in _PIDS:
        probe = root / f"slipway-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            has_limit = (probe / "pids.max").exists()
            probe.rmdir()
            if has_limit:
                return root
    return None


@contextlib.asynccontextmanager
async def full_process_table(members: Sequence[ProcessIdentity]) -> AsyncIterator[None]:
    """Let these processes, and those that they start, make no process and no thread."""
    root = _pids_root()
    assert root is not None
    group = root / f"slipway-faults-{os.getpid()}"
    group.mkdir()
    try:
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(member.pid))
        (group / "pids.max").write_text("0")
        yield
    finally:
        (group / "pids.max").write_text("max")
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (root / "cgroup.procs").write_text(pid)
        group.rmdir()


class FakeClock:
    """The wall clock of processes that are started within `preloaded`, by libfaketime."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._envoy = folder / "envoy"
        self._library = next((path for path in _LIBRARIES if path.exists()), None)

    @property
    def problem(self) -> str:
        """Why there is none; empty if there is."""
        return "" if self._library else "libfaketime is not installed: apt-get install faketime"

    @contextlib.contextmanager
    def preloaded(self) -> Iterator[None]:
        """Let the processes that are started within the block have this clock."""
        self._file.write_text("+0")
        self._envoy.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {find_envoy()} "$@"\n')
        self._envoy.chmod(0o755)
        before = dict(os.environ)
        os.environ |= {
            "SLIPWAY_ENVOY": str(self._envoy),  # which does not start with the library
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before

    @contextlib.asynccontextmanager
    async def stepped(self, step: str) -> AsyncIterator[None]:
        """Set the clock by `step` seconds, such as `+3600`, and set it right again."""
        self._file.write_text(step)
        try:
            yield
        finally:
            self._file.write_text("+0")
