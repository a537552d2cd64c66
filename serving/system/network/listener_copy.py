"""Copies the socket on which another process listens, with pidfd_getfd(2)."""

import ctypes
import errno
import os
import socket

from serving.system import processes
from serving.system.processes import ProcessIdentity

_PIDFD_GETFD = 438
"""Number of the system call on every architecture, since Linux 5.6."""


def of_process(process: ProcessIdentity, host: str, port: int) -> socket.socket | None:
    """Return a copy of the socket on which a process listens at an address, or None.

    The result is None if the process has ended or does not listen at the address, or if this process may not
    trace it (ptrace(2)): another user's process, or one that `kernel.yama.ptrace_scope` protects.

    Args:
        process: the process that listens.
        host: numeric address of the socket.
        port: port of the socket.
    """
    pidfd = processes.open_pidfd(process)
    if pidfd is None:
        return None
    try:
        descriptors = sorted(map(int, os.listdir(f"/proc/{process.pid}/fd")))  # noqa: PTH208 names are wanted
        for descriptor in descriptors:
            try:
                if not os.readlink(f"/proc/{process.pid}/fd/{descriptor}").startswith("socket:"):  # noqa: PTH115
                    continue
                copy = _listener_copy(pidfd, descriptor, host, port)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EBADF):
                    raise
                continue  # the process has closed this descriptor meanwhile
            if copy is not None:
                return copy
    except OSError:  # no permission, or the process has ended
        pass
    finally:
        os.close(pidfd)
    return None


def _listener_copy(pidfd: int, descriptor: int, host: str, port: int) -> socket.socket | None:
    """Return a copy of a process's socket if it listens at the address, or None."""
    own_descriptor = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, descriptor, 0))
    if own_descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    try:
        copy = socket.socket(fileno=own_descriptor)
    except OSError:  # the process has reused the number for another file
        os.close(own_descriptor)
        return None
    is_listener = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    if is_listener and copy.getsockname()[:2] == (host, port):
        return copy
    copy.close()
    return None
