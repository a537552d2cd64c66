"""Which cgroup files stand for a container's limits, in v1, v2 and the hybrid of both. Text in, paths out.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from serving.embedded.kubelet.devices import gpu_limits
from serving.resources import quantity

PERIOD_MICROSECONDS = 100_000
"""kubelet's cpuCFSQuotaPeriod default."""


@dataclass(frozen=True)
class Layout:
    """Where each controller is mounted (None: nowhere usable), and where processes can be tracked."""

    unified: str | None = None
    memory_v1: str | None = None
    cpu_v1: str | None = None
    unified_controllers: frozenset[str] = frozenset()

    @property
    def roots(self) -> tuple[str, ...]:
        """Every hierarchy that a container joins, each once."""
        return tuple(dict.fromkeys(root for root in (self.unified, self.memory_v1, self.cpu_v1) if root))

    def enforces(self, resource: str) -> bool:
        """Whether there is a controller for `cpu` or `memory`."""
        return resource in self.unified_controllers or bool(
            {"cpu": self.cpu_v1, "memory": self.memory_v1}[resource]
        )


def layout(mounts: str, controllers: str) -> Layout:
    """Read /proc/mounts and the unified hierarchy's cgroup.controllers (empty where there is none)."""
    unified = memory = cpu = None
    for line in mounts.splitlines():
        _, point, kind, options = line.split(" ")[:4]
        named = options.split(",")
        if kind == "cgroup2":
            unified = unified or point
        elif kind == "cgroup":
            memory = point if "memory" in named else memory
            cpu = point if "cpu" in named else cpu
    in_unified = frozenset(controllers.split()) & {"cpu", "memory"}
    return Layout(
        unified,
        None if "memory" in in_unified else memory,
        None if "cpu" in in_unified else cpu,
        in_unified,
    )


@dataclass(frozen=True)
class Limits:
    """Of one container; None is no limit."""

    cpu: Decimal | None = None
    memory: int | None = None
    other: tuple[str, ...] = ()
    """Resources that nothing here can limit."""


def limits(container: Mapping[str, Any]) -> Limits:
    """Return what `resources.limits` asks for: cpu in cores, memory in bytes."""
    asked = (container.get("resources") or {}).get("limits") or {}
    cpu, memory = asked.get("cpu"), asked.get("memory")
    return Limits(
        None if cpu is None else quantity.parse(cpu),
        None if memory is None else int(quantity.parse(memory)),
        tuple(sorted(set(asked) - {"cpu", "memory", gpu_limits.RESOURCE})),
    )


def without_inherited(wanted: Limits, inherited: int) -> Limits:
    """Return the limits of a forked container's own cgroup, so that what it holds altogether stays within `wanted`.

    What a process shares with the one that it was forked from is charged to that one; the container's cgroup counts
    only what it allocates itself, and its own copies of shared pages that it changes (those count twice: the
    original is in `inherited` still).

    Args:
        wanted: as the Pod says.
        inherited: bytes that are shared at the fork.

    Raises:
        ValueError: the limit is used up before the container does anything.
    """
    if wanted.memory is None:
        return wanted
    left = wanted.memory - inherited
    if left <= 0:
        raise ValueError(
            f"memory limit {wanted.memory} is not above the {inherited} bytes that a forked process begins with"
        )
    return replace(wanted, memory=left)


def settings(where: Layout, group: str, wanted: Limits) -> list[tuple[str, str]]:
    """Return (file, text) to write, in order; `group` is the path below each root.

    Swap is not given beyond the memory limit, where the kernel accounts for it at all.
    """
    writes: list[tuple[str, str]] = []
    if wanted.memory is not None and "memory" in where.unified_controllers:
        base = f"{where.unified}/{group}"
        writes += [(f"{base}/memory.max", str(wanted.memory)), (f"{base}/memory.swap.max", "0"),
                   (f"{base}/memory.oom.group", "1")]  # fmt: skip
    elif wanted.memory is not None and where.memory_v1:
        base = f"{where.memory_v1}/{group}"
        writes += [(f"{base}/memory.limit_in_bytes", str(wanted.memory)),
                   (f"{base}/memory.memsw.limit_in_bytes", str(wanted.memory))]  # fmt: skip
    if wanted.cpu is not None:
        quota = max(int(wanted.cpu * PERIOD_MICROSECONDS), 1000)
        if "cpu" in where.unified_controllers:
            writes.append((f"{where.unified}/{group}/cpu.max", f"{quota} {PERIOD_MICROSECONDS}"))
        elif where.cpu_v1:
            base = f"{where.cpu_v1}/{group}"
            writes += [(f"{base}/cpu.cfs_period_us", str(PERIOD_MICROSECONDS)),
                       (f"{base}/cpu.cfs_quota_us", str(quota))]  # fmt: skip
    return writes


OPTIONAL_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes", "memory.oom.group")
"""Absent where the kernel has no swap accounting; the limit holds without them."""


def oom_file(where: Layout, group: str) -> str | None:
    """Return the file that counts OOM kills."""
    if "memory" in where.unified_controllers:
        return f"{where.unified}/{group}/memory.events"
    return f"{where.memory_v1}/{group}/memory.oom_control" if where.memory_v1 else None


def not_enforced(wanted: Sequence[Limits], missing: Mapping[str, str]) -> str:
    """Say which limits are asked for and not enforced; empty where all are.

    Args:
        wanted: of every container.
        missing: resource (`cpu`, `memory`) to the reason why it cannot be limited.
    """
    said = []
    for resource, reason in sorted(missing.items()):
        if any(getattr(limit, resource) is not None for limit in wanted):
            said.append(f"{resource}: {reason}")
    others = sorted({name for limit in wanted for name in limit.other})
    said += [f"{name}: no such limit on one machine" for name in others]
    return "; ".join(said)
