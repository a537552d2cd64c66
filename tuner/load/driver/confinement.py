"""The limits of a locust process: it cannot leave its core, act as root, or see another process."""

import os
from collections.abc import Sequence
from pathlib import Path

from serving.system.isolation import namespaces
from serving.system.isolation.seccomp import system_call_filter
from tuner.load.driver.import_paths import keep_importable


def stay_on(core: int) -> None:
    """Pin this process to a core, unless it is -1."""
    if core >= 0:
        os.sched_setaffinity(0, {core})


def join(cgroups: Sequence[str]) -> None:
    """Move this process to these cgroups, which limit it and its children."""
    for cgroup in cgroups:
        Path(cgroup, "cgroup.procs").write_text("0")  # 0 is the process that writes


def hide_machine() -> None:
    """If this process has its own PID namespace, show that in /proc, and give it its own shared memory."""
    if not namespaces.is_first_process():
        return
    namespaces.unshare(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWIPC)
    namespaces.make_mounts_private()
    namespaces.mount_own_shared_memory()
    namespaces.mount_own_proc()


def give_up_rights(user: int) -> None:
    """Give up root for an unprivileged user, unless it is -1: a locustfile has no more rights than its
    author.

    Any user is denied new privileges, and the system calls that containers may not use.
    """
    if user >= 0:
        keep_importable()
        namespaces.become(user)
    namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
    if program := system_call_filter().program:
        namespaces.filter_system_calls(program)
