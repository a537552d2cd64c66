"""Parses the usage of a container from the texts of its cgroups and of /proc. Pure.

A cgroup is charged for the pages that its processes touched first. Pages that a forked replica shares with
its zygote, and those of a model that several replicas map, are charged to another cgroup. A container's
memory is therefore the larger of its cgroup's charge and its processes' resident memory with shared pages.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html,
proc(5)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving.system.isolation.cgroup_layout import CgroupLayout

KIB = 1024


class CgroupPaths(NamedTuple):
    """A container's cgroup directories; None in a hierarchy without one."""

    unified: str | None = None
    memory_v1: str | None = None
    cpu_v1: str | None = None


def cgroup_paths(text: str, layout: CgroupLayout, top: str) -> CgroupPaths:
    """Return the cgroups that account for the container of a process.

    Args:
        text: /proc/PID/cgroup of the process.
        layout: the mounted hierarchies.
        top: the name of the directory of all containers' cgroups.
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        # In an outer container with v1 each path begins with that of this container, which the mounts lack.
        start = path.rfind(f"/{top}/")
        if start >= 0:
            paths |= dict.fromkeys(controllers.split(","), path[start:])

    def container_path(root: str | None, name: str) -> str | None:
        return f"{root}{paths[name]}" if root and name in paths else None

    return CgroupPaths(
        container_path(layout.unified, ""),
        container_path(layout.memory_v1, "memory"),
        container_path(layout.cpu_v1, "cpu"),
    )


class Cpu(NamedTuple):
    """The effect of a processor limit since the creation of the cgroup."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_seconds: float = 0.0


class Memory(NamedTuple):
    """The bytes charged to a cgroup."""

    working_set: int = 0
    rss: int = 0
    """Of pages that are of no file."""


def pairs(text: str) -> dict[str, int]:
    """Parse a file of `name value` lines."""
    lines = (line.split() for line in text.splitlines())
    return {parts[0]: int(parts[1]) for parts in lines if len(parts) == 2}


def throttling(text: str) -> Cpu:
    """Parse the limit's part of cpu.stat: v1 has `throttled_time` (ns), v2 `throttled_usec`."""
    numbers = pairs(text)
    seconds = numbers.get("throttled_usec", 0) / 1e6 + numbers.get("throttled_time", 0) / 1e9
    return Cpu(numbers.get("nr_periods", 0), numbers.get("nr_throttled", 0), seconds)


def charged(usage: str, stat: str) -> Memory:
    """Parse memory.current and memory.stat (v1: memory.usage_in_bytes, and names with the prefix `total_`).

    The working set is that of the kubelet: all but the inactive file pages.
    """
    numbers = pairs(stat)
    inactive = numbers.get("total_inactive_file", numbers.get("inactive_file", 0))
    return Memory(max(int(usage) - inactive, 0), numbers.get("total_rss", numbers.get("anon", 0)))


@dataclass(frozen=True)
class Process:
    """One process of /proc."""

    pid: int
    parent: int
    own_ticks: int
    """Clock ticks of processor time."""
    reaped_ticks: int
    """Clock ticks of its children that have ended and were waited for."""


def process(pid: int, stat: str) -> Process:
    """Parse /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    utime, stime, cutime, cstime = (int(field) for field in fields[11:15])
    return Process(pid, int(fields[1]), utime + stime, cutime + cstime)


def tree(processes: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return the children of every process."""
    children: dict[int, list[int]] = {}
    for child in processes.values():
        children.setdefault(child.parent, []).append(child.pid)
    return children


def below(root: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    """Return all descendants of a process."""
    descendants: list[int] = []
    frontier = [root]
    while frontier:
        next_ = children.get(frontier.pop(), ())
        descendants += next_
        frontier += next_
    return descendants


def ticks(shim: int, members: Iterable[int], processes: Mapping[int, Process]) -> int:
    """Return the processor time of a container without a cgroup, in clock ticks.

    Args:
        shim: the pid of its shim, which reaps the processes that end.
        members: the processes below the shim.
        processes: all processes, by pid.
    """
    reaped = processes[shim].reaped_ticks if shim in processes else 0
    return reaped + sum(
        processes[pid].own_ticks + processes[pid].reaped_ticks for pid in members if pid in processes
    )


class Resident(NamedTuple):
    """Resident memory of one or more processes, in bytes."""

    total: int = 0
    unreclaimable: int = 0
    """All but mapped files."""
    peak: int = 0
    """The highest total of any of the processes."""


def resident(status: str) -> Resident:
    """Parse /proc/PID/status, in which the program chooses the text after `Name:`."""
    sizes = {
        name: int(value.split()[0]) * KIB
        for name, _, value in (line.partition(":") for line in status.split("\n"))
        if name.startswith(("Vm", "Rss"))
    }
    total = sizes.get("VmRSS", 0)
    return Resident(total, sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), sizes.get("VmHWM", total))


class Rollup(NamedTuple):
    """Bytes of one process: private, and shared with other processes."""

    private: int
    shared: int


def rollup(text: str) -> Rollup:
    """Parse /proc/PID/smaps_rollup."""
    sizes: dict[str, int] = {}
    for line in text.splitlines()[1:]:
        name, _, value = line.partition(":")
        sizes[name] = int(value.split()[0]) * KIB
    private = sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    return Rollup(private, sizes.get("Shared_Clean", 0) + sizes.get("Shared_Dirty", 0))


def together(residents: Sequence[Resident], rollups: Sequence[Rollup]) -> Resident:
    """Return the resident memory of a container's processes together.

    For several processes it is the sum of their private parts and the largest shared part: they mostly share
    with each other, so that a sum would count shared pages several times. It is a lower bound, as is the
    cgroup's charge. `unreclaimable` is that of one process, the largest: a rollup does not tell it apart.

    Args:
        residents: the resident memory of every process.
        rollups: of every process, if there are several and the kernel has smaps_rollup.
    """
    if not residents:
        return Resident()
    largest = max(resident.total for resident in residents)
    if len(residents) > 1 and rollups:
        largest = max(largest, sum(r.private for r in rollups) + max(r.shared for r in rollups))
    unreclaimable = max(resident.unreclaimable for resident in residents)
    return Resident(largest, unreclaimable, max(largest, *(resident.peak for resident in residents)))
