"""The cgroup files of a container's limits, in v1, v2 and the hybrid of both. Pure.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.system.isolation.cgroup_layout import CgroupLayout, memory_limit_writes

PERIOD_MICROSECONDS = 100_000
"""The kubelet's default of cpuCFSQuotaPeriod."""
_MIN_QUOTA_MICROSECONDS = 1_000
"""The kernel refuses a smaller quota."""


def without_inherited(limits: ContainerLimits, inherited: int) -> ContainerLimits:
    """Return the limits of a forked container's own cgroup, so that its memory stays within `limits`.

    Memory that a process shares with its zygote is charged to the zygote. The container's cgroup is charged
    only for its own allocations, and for its copies of shared pages (these count twice, as the originals are
    in `inherited`).

    Args:
        limits: the limits of the container's spec.
        inherited: bytes that are shared after the fork.

    Raises:
        ValueError: the inherited memory uses up the limit.
    """
    if limits.memory is None:
        return limits
    remaining = limits.memory - inherited
    if remaining <= 0:
        raise ValueError(
            f"memory limit {limits.memory} is not above the {inherited} bytes that a forked process "
            "begins with"
        )
    return replace(limits, memory=remaining)


def limit_writes(cgroups: CgroupLayout, group: str, limits: ContainerLimits) -> list[tuple[str, str]]:
    """Return the (file, text) to write, in order; `group` is the path below each root.

    The container gets no swap beyond the memory limit, where the kernel accounts for swap.
    """
    writes = [] if limits.memory is None else memory_limit_writes(cgroups, group, limits.memory)
    if limits.cpu is not None:
        quota = max(int(limits.cpu * PERIOD_MICROSECONDS), _MIN_QUOTA_MICROSECONDS)
        if "cpu" in cgroups.unified_controllers:
            writes.append((f"{cgroups.unified}/{group}/cpu.max", f"{quota} {PERIOD_MICROSECONDS}"))
        elif cgroups.cpu_v1:
            base = f"{cgroups.cpu_v1}/{group}"
            writes += [
                (f"{base}/cpu.cfs_period_us", str(PERIOD_MICROSECONDS)),
                (f"{base}/cpu.cfs_quota_us", str(quota)),
            ]
    return writes


def oom_file(cgroups: CgroupLayout, group: str) -> str | None:
    """Return the file that counts OOM kills; None where no memory controller is usable."""
    if "memory" in cgroups.unified_controllers:
        return f"{cgroups.unified}/{group}/memory.events"
    return f"{cgroups.memory_v1}/{group}/memory.oom_control" if cgroups.memory_v1 else None


def not_enforced(pod_limits: Sequence[ContainerLimits], missing: Mapping[str, str]) -> str:
    """Return a text about the limits of a Pod that are not enforced; empty if all are.

    Args:
        pod_limits: the limits of every container.
        missing: the reason why a resource (`cpu`, `memory`, or `pids`, which every Pod has) cannot be
            limited.
    """
    resources: dict[str, list[str]] = {}
    for resource, reason in sorted(missing.items()):
        if resource == "pids" or any(getattr(limit, resource) is not None for limit in pod_limits):
            resources.setdefault(reason, []).append(resource)
    parts = [f"{', '.join(names)}: {reason}" for reason, names in resources.items()]
    others = sorted({name for limit in pod_limits for name in limit.unsupported})
    parts += [f"{name}: no such limit on one machine" for name in others]
    return "; ".join(parts)
