"""What a container has used, from the texts of its cgroups and of /proc. Text in, numbers out.

A cgroup is charged for the pages that its processes touched first. What a forked replica shares with its zygote, and what
replicas map of one model, is charged to another: so memory is the larger of the cgroup's figure and of what is resident in
the container's processes, shared pages included.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html, proc(5)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving.embedded.kubelet.resources.cgroup_limits import Layout

KIB = 1024


class Places(NamedTuple):
    """A container's own cgroup directories; None where it has none in that hierarchy."""

    unified: str | None = None
    memory_v1: str | None = None
    cpu_v1: str | None = None


def places(text: str, where: Layout, top: str) -> Places:
    """Return where a process's container is accounted for.

    Args:
        text: its /proc/PID/cgroup.
        where: what is mounted where.
        top: the name of the directory below which all containers' cgroups lie.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        start = path.rfind(f"/{top}/")
        if start >= 0:
            found |= dict.fromkeys(controllers.split(","), path[start:])

    def at(root: str | None, name: str) -> str | None:
        return f"{root}{found[name]}" if root and name in found else None

    return Places(at(where.unified, ""), at(where.memory_v1, "memory"), at(where.cpu_v1, "cpu"))


class Cpu(NamedTuple):
    """Of a processor limit; all since the cgroup was made."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_seconds: float = 0.0


class Memory(NamedTuple):
    """Bytes that a cgroup is charged for."""

    working_set: int = 0
    rss: int = 0


def pairs(text: str) -> dict[str, int]:
    """Return the numbers of a file of `name value` lines."""
    found = (line.split() for line in text.splitlines())
    return {parts[0]: int(parts[1]) for parts in found if len(parts) == 2}


def throttling(text: str) -> Cpu:
    """Return what cpu.stat says of the limit: v1 has `throttled_time` (ns), v2 `throttled_usec`."""
    said = pairs(text)
    seconds = said.get("throttled_usec", 0) / 1e6 + said.get("throttled_time", 0) / 1e9
    return Cpu(said.get("nr_periods", 0), said.get("nr_throttled", 0), seconds)


def charged(usage: str, stat: str) -> Memory:
    """Return what memory.current and memory.stat say (v1: memory.usage_in_bytes, with `total_` before the names).

    The working set is kubelet's: all but the file pages that were not used lately.
    """
    said = pairs(stat)
    inactive = said.get("total_inactive_file", said.get("inactive_file", 0))
    return Memory(max(int(usage) - inactive, 0), said.get("total_rss", said.get("anon", 0)))


@dataclass(frozen=True)
class Process:
    """What /proc says of one process."""

    pid: int
    parent: int
    own_ticks: int
    """Clock ticks of processor time."""
    reaped_ticks: int
    """Those of its children that have ended and were waited for."""


def process(pid: int, stat: str) -> Process:
    """Read /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    utime, stime, cutime, cstime = (int(field) for field in fields[11:15])
    return Process(pid, int(fields[1]), utime + stime, cutime + cstime)


def tree(processes: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return the children of every process."""
    children: dict[int, list[int]] = {}
    for found in processes.values():
        children.setdefault(found.parent, []).append(found.pid)
    return children


def below(root: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    """Return all processes below one."""
    found: list[int] = []
    frontier = [root]
    while frontier:
        next_ = children.get(frontier.pop(), ())
        found += next_
        frontier += next_
    return found


def ticks(recorder: int, members: Iterable[int], processes: Mapping[int, Process]) -> int:
    """Return the processor time of a container without a cgroup, in clock ticks.

    Args:
        recorder: its exit recorder, which waits for what ends there.
        members: the processes below that.
        processes: by pid.
    """
    reaped = processes[recorder].reaped_ticks if recorder in processes else 0
    return reaped + sum(
        processes[pid].own_ticks + processes[pid].reaped_ticks for pid in members if pid in processes
    )


class Resident(NamedTuple):
    """Bytes of one or more processes that are in memory."""

    total: int = 0
    unreclaimable: int = 0
    """Without mapped files."""
    peak: int = 0
    """Highest total of one of them."""


def resident(status: str) -> Resident:
    """Read /proc/PID/status."""
    said = {
        name: int(rest.split()[0]) * KIB
        for name, _, rest in (line.partition(":") for line in status.splitlines())
        if rest.endswith("kB")
    }
    total = said.get("VmRSS", 0)
    return Resident(total, said.get("RssAnon", 0) + said.get("RssShmem", 0), said.get("VmHWM", total))


class Rollup(NamedTuple):
    """Bytes of one process, apart: what it has alone, and what it shares with anybody."""

    private: int
    shared: int


def rollup(text: str) -> Rollup:
    """Read /proc/PID/smaps_rollup."""
    said: dict[str, int] = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        said[name] = int(rest.split()[0]) * KIB
    private = said.get("Private_Clean", 0) + said.get("Private_Dirty", 0)
    return Rollup(private, said.get("Shared_Clean", 0) + said.get("Shared_Dirty", 0))


def together(residents: Sequence[Resident], rollups: Sequence[Rollup]) -> Resident:
    """Return what a container's processes hold together.

    Of several, what each has alone, and the largest part that one shares: they mostly share with each other, and adding
    it up would count it once for each. It is the least that is right; what is charged to the cgroup is counted besides.

    Args:
        residents: of every process.
        rollups: of every process, where there are several and the kernel tells.
    """
    if not residents:
        return Resident()
    largest = max(found.total for found in residents)
    if len(residents) > 1 and rollups:
        largest = max(largest, sum(r.private for r in rollups) + max(r.shared for r in rollups))
    unreclaimable = max(found.unreclaimable for found in residents)
    return Resident(largest, unreclaimable, max(largest, *(found.peak for found in residents)))
