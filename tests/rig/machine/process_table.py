"""A cgroup whose processes can make no more processes and threads."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from serving.system.processes import ProcessIdentity

ROOT = Path("/sys/fs/cgroup/pids")


@contextlib.contextmanager
def full(members: Sequence[ProcessIdentity]) -> Iterator[None]:
    """Keep these processes and their children from making others; skip the test without the right to."""
    if os.geteuid() != 0 or not ROOT.is_dir():
        pytest.skip("a full process table needs root and the cgroup controller `pids` of version 1")
    group = ROOT / f"slipway-test-{os.getpid()}"
    group.mkdir()
    try:
        for member in members:
            (group / "cgroup.procs").write_text(str(member.pid))
        (group / "pids.max").write_text("0")
        yield
    finally:
        (group / "pids.max").write_text("max")
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (ROOT / "cgroup.procs").write_text(pid)
        group.rmdir()
