"""Makes, limits and removes cgroups, and reports the resources that cannot be limited."""

import contextlib
import errno
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving.embedded.kubelet.resources.cgroup_limits import limit_writes, oom_file
from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import (
    CONTROLLERS,
    OPTIONAL_FILES,
    CgroupLayout,
    cpu_weight_writes,
    process_limit_writes,
)

log = logging.getLogger(__name__)

TOP = "slipway"
SPARES = "spares"
"""The directory of spare processes' cgroups, beside those of Pods (named by uid)."""
PODS_CPU_WEIGHT = 3
"""CPU weight of the cgroup of all Pods on each core; 1 is the weight of a busy process outside of it. `up`
and the five components are six processes: on two cores Pods keep half of the CPU time while all of these
start. With a weight of 1, requests waited for seconds (`benchmarks/faults.py`, "up and every component").
"""
_SPARES_CPU_WEIGHT = 1
"""CPU weight of the cgroup of all spare processes on each core. The forked containers of many replicas run in
it, beside the cgroups of other Pods, each of which has the weight of one busy process in all."""


def _directory(container: str) -> str:
    """Return the name of a container's cgroups: each directory of v1 has a file `tasks`, and no container has
    a name with `_`.
    """
    return "tasks_" if container == "tasks" else container


@dataclass(frozen=True)
class ContainerCgroups:
    """A container's cgroups, one in each hierarchy."""

    paths: tuple[str, ...] = ()
    kill_file: str | None = None
    """cgroup.kill, which ends all processes of the cgroup; None without a cgroup of v2."""
    oom_file: str | None = None
    """The file that counts OOM kills; None where no memory controller is usable."""
    not_limited: Mapping[str, str] = field(default_factory=dict)
    """Why a resource of this container could not be limited, by resource, beside `Cgroups.missing`."""


@dataclass
class Cgroups:
    """The cgroups that this process can use."""

    layout: CgroupLayout
    missing: dict[str, str] = field(default_factory=dict)
    """Why a resource (`cpu`, `memory`, `pids`) of no container can be limited, by resource."""
    pids_limit: int = 0
    """Most processes and threads of a Pod; 0 is no limit."""

    def create(self, uid: str, container: str, limits: ContainerLimits) -> ContainerCgroups:
        """Make and limit a container's cgroups."""
        joined = []
        name = f"{TOP}/{uid}/{_directory(container)}"
        for root in self.layout.roots:
            try:
                # Twice: the end of another container may remove the Pod's cgroup during the first attempt.
                with contextlib.suppress(FileNotFoundError):
                    self._make(root, uid, container)
                self._make(root, uid, container)
                joined.append(f"{root}/{name}")
            except OSError as error:
                log.info("no cgroup below %s: %s", root, error)
        pods_writes = process_limit_writes(self.layout, f"{TOP}/{uid}", self.pids_limit)
        failed = self._write([*pods_writes, *limit_writes(self.layout, name, limits)])
        return self._limited(name, joined, failed)

    def make_spares(self) -> list[str]:
        """Make and return the directories in which zygotes make the cgroups of spare processes.

        A spare joins its cgroup before it is needed: to join one waits for all processors, which takes 10 to
        20 ms where joins are rare, longer than a fork.
        """
        directories = []
        for root in self.layout.roots:
            with contextlib.suppress(OSError):
                cgroup_files.make_parents(self.layout, root, (TOP, f"{TOP}/{SPARES}"))
                directories.append(f"{root}/{TOP}/{SPARES}")
        self.set_cpu_weight(f"{TOP}/{SPARES}", _SPARES_CPU_WEIGHT)
        return directories

    def set_cpu_weight(self, group: str, processes: int) -> None:
        """Give a cgroup of many Pods the CPU weight of `processes` busy processes on each core.

        `group` is its path below each hierarchy.
        """
        for path, text in cpu_weight_writes(self.layout, group, processes * len(os.sched_getaffinity(0))):
            with contextlib.suppress(OSError):
                Path(path).write_text(text)

    def limit_spare(self, groups: Sequence[str], limits: ContainerLimits) -> ContainerCgroups:
        """Limit the cgroups in which a forked process waits.

        They are not below a cgroup of the Pod: this container alone gets the Pod's limit of processes.

        Raises:
            OSError: the process uses more than a limit, or has ended and removed its cgroups: a new process
                would have its limits. Where it would not either, the reason is in `not_limited`.
        """
        name = f"{TOP}/{SPARES}/{groups[0].rpartition('/')[2]}"
        pods_writes = process_limit_writes(self.layout, name, self.pids_limit)
        failed = self._write([*pods_writes, *limit_writes(self.layout, name, limits)])
        # ENOENT is of a cgroup that is gone, or that the zygote could not make.
        if any(error.errno in (errno.EBUSY, errno.ENOENT, errno.ENODEV) for error in failed.values()):
            raise OSError("; ".join(str(error.strerror) for error in failed.values()))
        return self._limited(name, groups, failed)

    def sweep_spares(self) -> None:
        """Remove the cgroups of forked processes that are gone; the kernel refuses to remove those in use."""
        for root in self.layout.roots:
            with contextlib.suppress(OSError):
                for group in Path(root, TOP, SPARES).iterdir():
                    if group.is_dir():
                        cgroup_files.remove(group)

    def _limited(self, name: str, joined: Sequence[str], failed: Mapping[str, OSError]) -> ContainerCgroups:
        """Return the cgroups `joined`, whose path below each hierarchy is `name`; `failed` is of `_write`."""
        unified = f"{self.layout.unified}/{name}"
        kill_file = f"{unified}/cgroup.kill" if unified in joined else None
        not_limited = {resource: str(error.strerror) for resource, error in failed.items()}
        return ContainerCgroups(tuple(joined), kill_file, oom_file(self.layout, name), not_limited)

    def _write(self, limits: Sequence[tuple[str, str]]) -> dict[str, OSError]:
        """Write each (file, text); return the errors, by resource, whose `strerror` names the file.

        Those of `missing` are not repeated: they tell the user what to do.
        """
        failed: dict[str, OSError] = {}
        for path, text in limits:
            try:
                Path(path).write_text(text)
            except OSError as error:
                file = path.rsplit("/", 1)[-1]
                resource = file.split(".")[0]
                if file not in OPTIONAL_FILES and resource not in self.missing:
                    failed.setdefault(resource, OSError(error.errno, f"{file}: {error.strerror}"))
        return failed

    def _make(self, root: str, uid: str, container: str) -> None:
        """Make a container's cgroup and those above it in the hierarchy at `root`."""
        cgroup_files.make_parents(self.layout, root, (TOP, f"{TOP}/{uid}"))
        Path(root, TOP, uid, _directory(container)).mkdir(exist_ok=True)

    def paths(self, uid: str, container: str) -> list[str]:
        """Return the existing cgroups of a container."""
        paths = (f"{root}/{TOP}/{uid}/{_directory(container)}" for root in self.layout.roots)
        return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 paths are text here

    def remove(self, uid: str, container: str | None = None) -> None:
        """Remove the cgroups of a Pod, or those of one container and the Pod's if no other container has any.

        A cgroup that is not empty after `cgroup_files.REMOVE_SECONDS` is not removed. Blocks until then.
        """
        name = None if container is None else _directory(container)
        pods = [Path(root, TOP, uid) for root in self.layout.roots]
        groups: list[Path] = []
        for pod in pods:
            with contextlib.suppress(FileNotFoundError):  # the end of another container removed it
                groups += (c for c in pod.iterdir() if c.is_dir() and name in (None, c.name))
        cgroup_files.remove_all(groups)
        for pod in pods:
            cgroup_files.remove(pod)


def detect(pids_limit: int = 0) -> Cgroups:
    """Determine by trial which resources can be limited, and set the CPU weight of all Pods.

    `pids_limit` is the most processes and threads of each Pod; 0 is no limit.
    """
    cgroups = Cgroups(cgroup_files.machine_layout(), pids_limit=pids_limit)
    for resource in CONTROLLERS:
        if cgroups.layout.root_of(resource) is None:
            cgroups.missing[resource] = "no cgroup controller is mounted"
    for root in cgroups.layout.roots:
        try:
            cgroup_files.make_parents(cgroups.layout, root, ("",))
            Path(root, TOP).mkdir(exist_ok=True)
            if not os.access(Path(root, TOP), os.W_OK):
                raise PermissionError(13, "permission denied")  # EACCES
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
    # To move a process in v2, a user must be able to write to the common ancestor of its old and its new
    # cgroup. Root owns that ancestor, so that cgroups of this user's own would not help.
    delegate = "" if root == layout.unified else ", or let root give it cgroups (docs/security.md)"
    return f"this user may not make cgroups: run `slipway up` as root{delegate}"


def _mark_missing(cgroups: Cgroups, root: str, reason: str) -> None:
    """Record that no resource of the hierarchy at `root` can be limited."""
    for name in CONTROLLERS:
        if cgroups.layout.root_of(name) == root:
            cgroups.missing.setdefault(name, reason)
