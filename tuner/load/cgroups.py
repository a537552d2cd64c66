"""The cgroups of load generators: a user's locustfile has a limit of processes and memory, as a Pod has."""

import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import (
    OPTIONAL_FILES,
    CgroupLayout,
    cpu_weight_writes,
    memory_limit_writes,
    process_limit_writes,
)
from tuner.settings import LoadSettings

log = logging.getLogger(__name__)

TOP = "slipway-load"
"""Name of the generators' cgroup. It is a sibling of the Pods' cgroup: below that one, the generators would
share the processor time of the Pods."""
_LIMITED = ("memory", "pids")


def make(user: int, settings: LoadSettings) -> list[str]:
    """Make and limit the cgroups of the processes of one run, and return their directories.

    There is one in each hierarchy of _LIMITED: one in cgroups v2, up to two in v1. A limit that cannot be set
    is logged.

    Args:
        user: the user id of the run's processes, which distinguishes the runs of this process.
        settings: the limits.
    """
    layout, group = cgroup_files.machine_layout(), f"{TOP}/{os.getpid()}-{user}"
    writes = [
        *process_limit_writes(layout, group, settings.pids_limit),
        *memory_limit_writes(layout, group, settings.memory_bytes),
    ]
    made = []
    roots = [layout.root_of(controller) for controller in _LIMITED]
    for root in dict.fromkeys(root for root in roots if root is not None):
        try:
            _make(layout, root, group)
            made.append(f"{root}/{group}")
            for path, text in writes:
                if path.startswith(f"{root}/"):
                    _write(path, text)
        except OSError as error:
            log.warning("a load generator is not limited: %s: %s", error.filename or root, error.strerror)
    for controller in _LIMITED:
        if layout.root_of(controller) is None:
            log.warning("a load generator's %s is not limited: no cgroup controller is mounted", controller)
    return made


def _make(layout: CgroupLayout, root: str, group: str) -> None:
    """Make a run's cgroup in one hierarchy, and remove those of tuner processes that were killed earlier."""
    cgroup_files.make_parents(layout, root, ("", TOP), _LIMITED)
    if root == layout.unified:
        # Without the cpu controller, generators and Pods compete process by process.
        with contextlib.suppress(OSError):
            for path, text in cpu_weight_writes(layout, TOP, len(os.sched_getaffinity(0))):
                Path(path).write_text(text)
    for earlier in Path(root, TOP).iterdir():
        pid, _, _ = earlier.name.partition("-")
        if earlier.is_dir() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                earlier.rmdir()
    Path(root, group).mkdir(exist_ok=True)


def _write(path: str, text: str) -> None:
    """Write a file of a cgroup; one of OPTIONAL_FILES may be missing."""
    try:
        Path(path).write_text(text)
    except OSError:
        if Path(path).name not in OPTIONAL_FILES:
            raise


def remove(groups: Sequence[str]) -> None:
    """Kill all processes in the cgroups of a run, and remove these; blocks for at most
    `cgroup_files.REMOVE_SECONDS`.
    """
    cgroup_files.remove_all(map(Path, groups), _removed)


def _removed(group: Path) -> bool:
    """Kill the processes of a cgroup, and return whether it is removed."""
    with contextlib.suppress(OSError):
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            # 0 is a process of a namespace that is not below this one; `kill` of 0 ends this process group.
            if pid > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return cgroup_files.remove(group)
