"""Reads the limits of this process's cgroups, of v1 and v2. Imports no numeric library."""

from collections.abc import Callable
from pathlib import Path

ROOT, SELF = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of the memory limit in cgroup v2 and v1."""
_UNLIMITED = 1 << 60
"""The least number that v1 writes where there is no limit is 2^63, rounded down to a page."""


def cpu_limit(root: Path = ROOT, self_cgroup: Path = SELF) -> float | None:
    """Return the tightest limit of this process's cgroups, in cores; None where there is none.

    Reads `cpu.max` (cgroup v2) or `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1).
    """
    return _tightest("cpu", _cores, root, self_cgroup)


def memory_limit(root: Path = ROOT, self_cgroup: Path = SELF) -> int | None:
    """Return the tightest limit of this process's cgroups, in bytes; None where there is none."""
    limit = _tightest("memory", _memory, root, self_cgroup)
    return None if limit is None else int(limit)


def _tightest(
    controller: str, read: Callable[[Path], float | None], root: Path, self_cgroup: Path
) -> float | None:
    try:
        lines = self_cgroup.read_text().splitlines()
    except OSError:
        return None
    limits: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        own = base / path.lstrip("/")
        levels = (level for level in (own, *own.parents) if level.is_relative_to(base))
        limits += [limit for level in levels if (limit := read(level)) is not None]
    return min(limits, default=None)


def _cores(directory: Path) -> float | None:
    try:
        if (directory / "cpu.max").exists():
            quota, period = (directory / "cpu.max").read_text().split()
        else:
            quota = (directory / "cpu.cfs_quota_us").read_text().strip()
            period = (directory / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def _memory(directory: Path) -> float | None:
    for name in _MEMORY_LIMITS:
        try:
            text = (directory / name).read_text().strip()
        except OSError:
            continue
        if text != "max" and int(text) < _UNLIMITED:
            return int(text)
    return None
