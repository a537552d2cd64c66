"""Shims that cannot be waited for are not left running, and are notified of the binds that they can make."""

import errno
import os
import struct
from pathlib import Path

import pytest

from serving.embedded.kubelet.spawning import can_notify_of_binds, spawn_shim
from serving.system import processes
from serving.system.isolation import namespaces


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


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_binds_are_not_notified_when_sockets_of_others_cannot_be_opened(number: int) -> None:
    """pidfd_getfd(2) is of Linux 5.6, notifications are of 5.0; container runtimes may deny it."""
    pidfd_getfd, return_errno, allow = 438, 0x50000, 0x7FFF0000
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # load the number of the system call
            (0x15, 0, 1, pidfd_getfd),  # another one: skip an instruction
            (0x06, 0, 0, return_errno | number),
            (0x06, 0, 0, allow),
        )
    )
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
            namespaces.filter_system_calls(program)
            status = int(can_notify_of_binds())
        finally:
            os._exit(status)  # with an error the child would go on as a second session of tests
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
