"""The limits of a locust process: it cannot outlive its parent, leave its core or act as root."""

import ctypes
import os
import resource
import signal

from tuner.load.driver.import_paths import keep_importable

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38  # <linux/prctl.h>


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now if it has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def stay_on(core: int) -> None:
    """Pin this process to a core, unless it is -1."""
    if core >= 0:
        os.sched_setaffinity(0, {core})


def open_many() -> None:
    """Raise the limit of open files: each unanswered request has one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def become(user: int) -> None:
    """Give up root for an unprivileged user: a locustfile must not run with more rights than its author."""
    if user < 0 or os.geteuid() != 0:
        return
    keep_importable()
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
