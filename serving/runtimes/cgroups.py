"""Reads the limits of this process's cgroups, of v1 and v2.

Imports no numeric library, as `threads` needs the CPU limit before NumPy is imported.
"""

from collections.abc import Callable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""Mount point of cgroup v2, and the parent of those of v1's controllers."""
SELF = Path("/proc/self/cgroup")
"""Lists the cgroups of this process, relative to the mount points (cgroups(7))."""
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of the memory limit in cgroup v2 and v1."""
_UNLIMITED = 1 << 60
"""Bytes from which a memory limit of v1 counts as none: without a limit, v1 writes 2^63 bytes, rounded down
to a page, and no machine has 2^60 bytes."""


def cpu_limit(root: Path = ROOT, self_cgroup: Path = SELF) -> float | None:
    """Return the tightest CPU limit of this process's cgroups and their parents, in cores; None without one.

    Reads `cpu.max` (cgroup v2) or `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1).
    """
    return _tightest("cpu", _cores, root, self_cgroup)


def memory_limit(root: Path = ROOT, self_cgroup: Path = SELF) -> int | None:
    """Return the tightest memory limit of the same cgroups, in bytes; None without one."""
    limit = _tightest("memory", _memory_bytes, root, self_cgroup)
    return None if limit is None else int(limit)


def _tightest(
    controller: str, read: Callable[[Path], float | None], root: Path, self_cgroup: Path
) -> float | None:
    """Return the least limit of a controller that `read` returns for a cgroup's directory or its parents."""
    try:
        lines = self_cgroup.read_text().splitlines()
    except OSError:
        return None
    limits: list[float] = []
    for line in lines:
        # hierarchy:controllers:path; the line of cgroup v2 names no controllers
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount_point = root / controller if controllers else root
        directory = mount_point / path.lstrip("/")
        levels = (level for level in (directory, *directory.parents) if level.is_relative_to(mount_point))
        limits += [limit for level in levels if (limit := read(level)) is not None]
    return min(limits, default=None)


def _cores(directory: Path) -> float | None:
    """Return the CPU limit of one cgroup: its quota over its period, both in microseconds."""
    try:
        if (directory / "cpu.max").exists():
            quota, period = (directory / "cpu.max").read_text().split()
        else:
            quota = (directory / "cpu.cfs_quota_us").read_text().strip()
            period = (directory / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def _memory_bytes(directory: Path) -> int | None:
    """Return the memory limit of one cgroup."""
    for name in _MEMORY_LIMITS:
        try:
            text = (directory / name).read_text().strip()
        except OSError:
            continue
        if text != "max" and int(text) < _UNLIMITED:
            return int(text)
    return None
