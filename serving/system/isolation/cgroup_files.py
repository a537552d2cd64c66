"""The cgroups of this machine: their layout, and the removal of single ones."""

import contextlib
from pathlib import Path

from serving.system.isolation.cgroup_layout import CgroupLayout, layout


def machine_layout() -> CgroupLayout:
    """Return where cgroups can be made on this machine, by its mounts."""
    mounts, controllers = Path("/proc/mounts").read_text(), ""
    if unified := layout(mounts, "").unified:
        with contextlib.suppress(OSError):
            controllers = Path(unified, "cgroup.controllers").read_text()
    return layout(mounts, controllers)


def remove(group: Path) -> bool:
    """Remove an empty cgroup; return False if it is not empty yet, or the kernel refuses otherwise."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
