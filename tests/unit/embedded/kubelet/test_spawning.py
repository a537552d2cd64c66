"""Shims that cannot be waited for are not left running."""

import errno
import os
from pathlib import Path

import pytest

from serving.embedded.kubelet.spawning import spawn_shim
from serving.system import processes


def test_shim_is_killed_when_no_descriptor_is_left_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(pid: int) -> int:
        asked.append(processes.identity_of(pid))
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", full)
    with pytest.raises(OSError, match="Too many open files"):
        spawn_shim(tmp_path / "shim.err", b"{}", [], isolated=False)
    [shim] = asked
    assert shim is not None
    assert processes.identity_of(shim.pid) is None
    with pytest.raises(ChildProcessError):
        os.waitpid(shim.pid, os.WNOHANG)
