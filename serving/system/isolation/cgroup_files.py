"""The cgroups of this machine: their layout, and how they are made and removed."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from serving.system.isolation.cgroup_layout import CONTROLLERS, CgroupLayout, layout

REMOVE_SECONDS = 1.0
"""Longest wait for the kernel to empty cgroups whose processes were killed."""
_PAUSE_SECONDS = 0.01
"""Between attempts to remove one."""


def machine_layout() -> CgroupLayout:
    """Return where cgroups can be made on this machine, by its mounts."""
    mounts, controllers = Path("/proc/mounts").read_text(), ""
    if unified := layout(mounts, "").unified:
        with contextlib.suppress(OSError):
            controllers = Path(unified, "cgroup.controllers").read_text()
    return layout(mounts, controllers)


def make_parents(
    cgroups: CgroupLayout, root: str, groups: Iterable[str], controllers: Iterable[str] = CONTROLLERS
) -> None:
    """Make cgroups in the hierarchy at `root`, whose children can have limits; an existing one is kept.

    Args:
        cgroups: the layout of this machine.
        root: one of its hierarchies.
        groups: paths below the root, outer ones first; the empty path is the root, which exists.
        controllers: to be enabled in the children, where v2 has them.
    """
    enabled = " ".join(f"+{name}" for name in controllers if name in cgroups.unified_controllers)
    for group in groups:
        path = Path(root, group)
        if group:
            path.mkdir(exist_ok=True)
        if root == cgroups.unified and enabled:
            (path / "cgroup.subtree_control").write_text(enabled)


def remove(group: Path) -> bool:
    """Remove an empty cgroup; return False if it is not empty yet, or the kernel refuses otherwise."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_all(groups: Iterable[Path], attempt: Callable[[Path], bool] = remove) -> None:
    """Repeat `attempt` on each cgroup until it returns that the cgroup is removed.

    What is left after `REMOVE_SECONDS` stays. Blocks until then.
    """
    deadline = time.monotonic() + REMOVE_SECONDS
    for group in groups:
        while not attempt(group) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
