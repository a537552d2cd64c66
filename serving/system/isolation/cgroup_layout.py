"""Where cgroups can be made and limited, in v1, v2 and the hybrid of both. Pure.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/
"""

from dataclasses import dataclass

CONTROLLERS = ("cpu", "memory", "pids")
"""The controllers that limit Pods."""
OPTIONAL_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes", "memory.oom.group")
"""Files that some kernels lack; the memory limit itself holds without them."""
_HIGHEST_CPU_WEIGHT = 10_000
"""The largest value of cpu.weight."""


@dataclass(frozen=True)
class CgroupLayout:
    """The mount points of the unified hierarchy (v2) and of the v1 controllers that limit Pods.

    None where it is not mounted; for a v1 controller also where the unified hierarchy has it.
    """

    unified: str | None = None
    memory_v1: str | None = None
    cpu_v1: str | None = None
    pids_v1: str | None = None
    unified_controllers: frozenset[str] = frozenset()
    """Those of `CONTROLLERS` that the unified hierarchy has; empty where it only tracks processes."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The hierarchies that a container joins."""
        roots = (self.unified, self.memory_v1, self.cpu_v1, self.pids_v1)
        return tuple(dict.fromkeys(root for root in roots if root))

    def root_of(self, controller: str) -> str | None:
        """Return the hierarchy of one of `CONTROLLERS`; None where it is not usable."""
        if controller in self.unified_controllers:
            return self.unified
        return {"cpu": self.cpu_v1, "memory": self.memory_v1, "pids": self.pids_v1}[controller]


def layout(mounts: str, controllers: str) -> CgroupLayout:
    """Parse /proc/mounts and the unified hierarchy's cgroup.controllers (empty without one)."""
    unified = memory = cpu = pids = None
    for line in mounts.splitlines():
        _, mount_point, kind, options = line.split(" ")[:4]
        mount_options = options.split(",")
        if kind == "cgroup2":
            unified = unified or mount_point
        elif kind == "cgroup":
            memory = mount_point if "memory" in mount_options else memory
            cpu = mount_point if "cpu" in mount_options else cpu
            pids = mount_point if "pids" in mount_options else pids
    in_unified = frozenset(controllers.split()) & set(CONTROLLERS)
    return CgroupLayout(
        unified,
        None if "memory" in in_unified else memory,
        None if "cpu" in in_unified else cpu,
        None if "pids" in in_unified else pids,
        in_unified,
    )


def cpu_weight_writes(cgroups: CgroupLayout, group: str, processes: int) -> list[tuple[str, str]]:
    """Return the (file, text) that give a cgroup the CPU weight of `processes` busy processes.

    The kernel's default is the weight of one process: 100 in v2, 1024 in v1.
    """
    if "cpu" in cgroups.unified_controllers:
        weight = min(100 * processes, _HIGHEST_CPU_WEIGHT)
        return [(f"{cgroups.unified}/{group}/cpu.weight", str(weight))]
    return [(f"{cgroups.cpu_v1}/{group}/cpu.shares", str(1024 * processes))] if cgroups.cpu_v1 else []


def process_limit_writes(cgroups: CgroupLayout, group: str, most: int) -> list[tuple[str, str]]:
    """Return the files to write, each with its text, to limit a group to `most` processes and threads.

    The list is empty for 0, which is no limit, and where the controller is not usable.
    """
    root = cgroups.root_of("pids")
    return [(f"{root}/{group}/pids.max", str(most))] if root and most else []


def memory_limit_writes(cgroups: CgroupLayout, group: str, most: int) -> list[tuple[str, str]]:
    """Return the files to write, each with its text, to limit a group to `most` bytes.

    The group may not swap where the kernel counts swap. The list is empty where the controller is not usable.
    """
    if "memory" in cgroups.unified_controllers:
        base = f"{cgroups.unified}/{group}"
        return [
            (f"{base}/memory.max", str(most)),
            (f"{base}/memory.swap.max", "0"),
            (f"{base}/memory.oom.group", "1"),
        ]
    if cgroups.memory_v1:
        base = f"{cgroups.memory_v1}/{group}"
        return [
            (f"{base}/memory.limit_in_bytes", str(most)),
            (f"{base}/memory.memsw.limit_in_bytes", str(most)),
        ]
    return []
