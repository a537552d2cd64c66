"""Makes, limits and removes cgroups, and records the resources that cannot be limited."""

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving import clock
from serving.embedded.kubelet.resources.cgroup_limits import group_cpu_weight, limit_writes, oom_file
from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import CONTROLLERS, OPTIONAL_FILES, CgroupLayout, process_limit

log = logging.getLogger(__name__)

TOP = "slipway"
SPARES = "spares"
"""The directory of spare processes' cgroups, beside those of Pods (named by uid)."""
PODS_CPU_WEIGHT = 3
"""Weight of all Pods on each core, in busy processes. `up` and the five components are six processes: on two
cores Pods keep half of the processor while all of them start. With a weight of one, requests waited for
seconds (`benchmarks/faults.py`, "up and every component").
"""
REMOVE_SECONDS = 1.0
"""Longest wait for the kernel to empty a cgroup whose processes were killed."""


@dataclass(frozen=True)
class ContainerCgroups:
    """A container's cgroups."""

    paths: tuple[str, ...] = ()
    kill_file: str | None = None
    oom_file: str | None = None


@dataclass
class Cgroups:
    """The cgroups that this process can use."""

    layout: CgroupLayout
    missing: dict[str, str] = field(default_factory=dict)
    """The reason why a resource cannot be limited, by resource."""
    pids_limit: int = 0
    """Most processes and threads of a Pod; 0 is no limit."""

    def create(self, uid: str, container: str, limits: ContainerLimits) -> ContainerCgroups:
        """Make and limit a container's cgroups; resources that cannot be limited are added to `missing`."""
        joined = []
        for root in self.layout.roots:
            try:
                with contextlib.suppress(FileNotFoundError):  # the end of another container removed the Pod's
                    self._make(root, uid, container)
                self._make(root, uid, container)
                joined.append(f"{root}/{TOP}/{uid}/{container}")
            except OSError as error:
                log.info("no cgroup below %s: %s", root, error)
        self._write(process_limit(self.layout, f"{TOP}/{uid}", self.pids_limit))
        return self._limit(f"{TOP}/{uid}/{container}", joined, limits)

    def make_spares(self) -> list[str]:
        """Make and return the directories in which zygotes make the cgroups of spare processes.

        Joining a cgroup waits for all processors (10 to 20 ms where joins are rare), longer than a fork.
        """
        directories = []
        for root in self.layout.roots:
            with contextlib.suppress(OSError):
                for part in (TOP, f"{TOP}/{SPARES}"):
                    Path(root, part).mkdir(exist_ok=True)
                    if root == self.layout.unified:
                        self._delegate(Path(root, part))
                directories.append(f"{root}/{TOP}/{SPARES}")
        self.set_cpu_weight(f"{TOP}/{SPARES}", 1)  # many replicas, beside Pods with a cgroup of their own
        return directories

    def set_cpu_weight(self, group: str, processes: int) -> None:
        """Give a group of Pods the weight of so many busy processes on each core."""
        for path, text in group_cpu_weight(self.layout, group, processes * len(os.sched_getaffinity(0))):
            with contextlib.suppress(OSError):
                Path(path).write_text(text)

    def limit_spare(self, groups: Sequence[str], limits: ContainerLimits) -> ContainerCgroups:
        """Limit the cgroups in which a forked process waits; it has all processes of its Pod to itself."""
        name = f"{TOP}/{SPARES}/{groups[0].rpartition('/')[2]}"
        self._write(process_limit(self.layout, name, self.pids_limit))
        return self._limit(name, groups, limits)

    def sweep_spares(self) -> None:
        """Remove the cgroups of forked processes that are gone; the kernel keeps those of the others."""
        for root in self.layout.roots:
            with contextlib.suppress(OSError):
                for group in Path(root, TOP, SPARES).iterdir():
                    if group.is_dir():
                        cgroup_files.remove(group)

    def _limit(self, name: str, joined: Sequence[str], limits: ContainerLimits) -> ContainerCgroups:
        self._write(limit_writes(self.layout, name, limits))
        unified = f"{self.layout.unified}/{name}"
        kill_file = f"{unified}/cgroup.kill" if unified in joined else None
        return ContainerCgroups(tuple(joined), kill_file, oom_file(self.layout, name))

    def _write(self, limits: Sequence[tuple[str, str]]) -> None:
        for path, text in limits:
            try:
                Path(path).write_text(text)
            except OSError as error:
                file = path.rsplit("/", 1)[-1]
                if file not in OPTIONAL_FILES:
                    # The reason of the node's start, of which this error is a consequence, says what to do.
                    self.missing.setdefault(file.split(".")[0], f"{file}: {error.strerror}")

    def _make(self, root: str, uid: str, container: str) -> None:
        for part in (TOP, f"{TOP}/{uid}"):
            Path(root, part).mkdir(exist_ok=True)
            if root == self.layout.unified:
                self._delegate(Path(root, part))
        Path(root, TOP, uid, container).mkdir(exist_ok=True)

    def _delegate(self, path: Path) -> None:
        controllers = " ".join(f"+{name}" for name in sorted(self.layout.unified_controllers))
        if controllers:
            (path / "cgroup.subtree_control").write_text(controllers)

    def paths(self, uid: str, container: str) -> list[str]:
        """Return the existing cgroups of a container."""
        paths = (f"{root}/{TOP}/{uid}/{container}" for root in self.layout.roots)
        return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 paths are text here

    def remove(self, uid: str, container: str | None = None) -> None:
        """Remove the cgroups of a Pod, or of one container; the Pod's own stays while another container runs.

        They must be empty within `REMOVE_SECONDS`.
        """
        deadline = clock.monotonic() + REMOVE_SECONDS
        for root in self.layout.roots:
            base = Path(root, TOP, uid)
            try:
                groups = [c for c in base.iterdir() if c.is_dir() and container in (None, c.name)]
            except FileNotFoundError:  # the end of another container removed it
                continue
            for group in groups:
                while not cgroup_files.remove(group) and clock.monotonic() < deadline:
                    time.sleep(0.01)
            cgroup_files.remove(base)


def detect(pids_limit: int = 0) -> Cgroups:
    """Determine by trial which resources can be limited; `pids_limit` is that of each Pod."""
    cgroups = Cgroups(cgroup_files.machine_layout(), pids_limit=pids_limit)
    for resource in CONTROLLERS:
        if cgroups.layout.root_of(resource) is None:
            cgroups.missing[resource] = "no cgroup controller is mounted"
    for root in cgroups.layout.roots:
        try:
            if root == cgroups.layout.unified:
                cgroups._delegate(Path(root))  # noqa: SLF001 of this module
            Path(root, TOP).mkdir(exist_ok=True)
            if not os.access(Path(root, TOP), os.W_OK):
                raise PermissionError(13, "permission denied")
        except OSError as error:
            _mark_missing(cgroups, root, _reason(cgroups.layout, root, error))
    if not pids_limit:
        cgroups.missing.pop("pids", None)
    cgroups.set_cpu_weight(TOP, PODS_CPU_WEIGHT)
    return cgroups


def _reason(layout: CgroupLayout, root: str, error: OSError) -> str:
    """Return why nothing can be limited below a root, and what to do about it."""
    if not isinstance(error, PermissionError) or os.geteuid() == 0:
        return f"{root}: {error.strerror}"
    # In v2 a process is moved by a user who may write to an ancestor of both cgroups, which is root's.
    delegate = "" if root == layout.unified else ", or let root give it cgroups (docs/security.md)"
    return f"this user may not make cgroups: run `slipway up` as root{delegate}"


def _mark_missing(cgroups: Cgroups, root: str, reason: str) -> None:
    for name in CONTROLLERS:
        if cgroups.layout.root_of(name) == root:
            cgroups.missing.setdefault(name, reason)
