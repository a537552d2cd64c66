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

    There is none if the process is gone or does not listen there, or if this process may not trace it:
    ptrace(2), as of another user, or by the setting `kernel.yama.ptrace_scope`.
    """
    pidfd = processes.open_pidfd(process)
    if pidfd is None:
        return None
    try:
        numbers = sorted(map(int, os.listdir(f"/proc/{process.pid}/fd")))  # noqa: PTH208 names are wanted
        for number in numbers:
            try:
                if not os.readlink(f"/proc/{process.pid}/fd/{number}").startswith("socket:"):  # noqa: PTH115
                    continue
                copy = _copied(pidfd, number, host, port)
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


def _copied(pidfd: int, number: int, host: str, port: int) -> socket.socket | None:
    descriptor = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, number, 0))
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    copy = socket.socket(fileno=descriptor)
    is_listener = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    if is_listener and copy.getsockname()[:2] == (host, port):
        return copy
    copy.close()
    return None
