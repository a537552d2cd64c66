"""This machine as a node, which all its Pods share; determined when the agent starts."""

import asyncio
import logging
import os
import pwd
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import serving
from serving import clock, runtime_variables
from serving.data_dir import DataDir
from serving.embedded.event_queue import EventQueue
from serving.embedded.kubelet.container.host_paths import HostPaths
from serving.embedded.kubelet.container.image_volumes import ImageVolumes
from serving.embedded.kubelet.devices.mps import Mps, directory_of
from serving.embedded.kubelet.metrics import NodeMetrics
from serving.embedded.kubelet.pod.identities import Identities
from serving.embedded.kubelet.pod.reserved_ports import ReservedPorts
from serving.embedded.kubelet.resources.cgroups import Cgroups, detect
from serving.embedded.kubelet.runtimes import LocalRuntime
from serving.embedded.kubelet.spawning import can_notify_of_binds
from serving.embedded.kubelet.zygote.pool import ZygotePool
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.images.store.model_store import ModelStore
from serving.kube import EventRecorder, Kube
from serving.settings import NodeSettings, Settings
from serving.system.isolation.seccomp import SystemCallFilter, system_call_filter
from serving.system.isolation.user_ids import SYSTEM_USER, UserIds
from serving.system.network.kept_sockets import KeptSockets

log = logging.getLogger(__name__)

LAUNCHES_AT_ONCE = 4
"""The most containers that are started at a time; more would compete for the processor."""


@dataclass(frozen=True)
class Isolation:
    """The isolation of containers where the agent runs as root."""

    cover: tuple[str, ...]
    """Directories that containers see empty, but for those of `keep` inside: root's home, the data directory,
    and the topmost directory above each of `keep` that other users cannot enter."""
    keep: tuple[str, ...]
    """Directories of the interpreter and its environment, read-only in containers, at their own paths."""
    user_ids: UserIds
    """The ids of the Pods' users."""


@dataclass
class Node:
    """This machine."""

    data_dir: DataDir
    settings: NodeSettings
    kube: Kube
    events: EventQueue
    cgroups: Cgroups
    identities: Identities
    ports: ReservedPorts
    isolation: Isolation | None
    runtimes: Mapping[str, LocalRuntime]
    """The local runtimes, by image."""
    zygotes: ZygotePool
    images: ImageVolumes
    host_paths: HostPaths
    mps: Mps
    system_calls: SystemCallFilter
    """The filter of containers' system calls."""
    binds_ports: bool = False
    """Whether the TCP ports of Pods are reserved, and bound by the shims."""
    runtime_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of containers of `runtimes`; the Pod's own take precedence."""
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    launching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LAUNCHES_AT_ONCE))

    def release(self, identity: PodIdentity) -> None:
        """Remove the Unix socket of a Pod that is gone, and free its address and ports."""
        if identity.socket is not None:
            (self.data_dir.pod_sockets / identity.socket).unlink(missing_ok=True)
        self.ports.release(identity, clock.monotonic())
        self.identities.release(identity)


def interpreter_paths() -> tuple[str, ...]:
    """Return the directories of this Python and of Slipway; none is inside another."""
    source = str(Path(next(iter(serving.__path__))).resolve().parent)
    paths = sorted({os.path.realpath(sys.base_prefix), sys.prefix, os.path.realpath(sys.prefix), source})
    return tuple(p for p in paths if not any(p != parent and p.startswith(parent + "/") for parent in paths))


def _closed_ancestor(path: str) -> str | None:
    """Return the topmost directory above `path` that other users cannot enter, or None."""
    parts = Path(path).parents
    for directory in sorted(parts, key=lambda p: len(p.parts)):
        if not directory.stat().st_mode & 0o001:
            return str(directory)
    return None


def detect_isolation(data_dir: DataDir) -> Isolation | None:
    """Return the isolation of containers; None for an ordinary user, who cannot isolate them.

    Raises:
        errors.Permanent: this user namespace has no user ids for Pods.
    """
    if os.geteuid() != 0:
        return None
    keep = interpreter_paths()
    homes = {pwd.getpwuid(0).pw_dir, str(data_dir.root.resolve())}
    homes |= {closed for path in keep if (closed := _closed_ancestor(path))}
    return Isolation(tuple(sorted(homes - {"/"})), keep, UserIds(data_dir.user_ids))


def _binds_ports(isolation: Isolation | None) -> bool:
    """Whether to reserve the Pods' TCP ports for their users; without isolation all Pods have one user."""
    if isolation is None:
        return False
    if not can_notify_of_binds():
        log.warning(
            "ports of containers are not reserved: this needs notifications of bind(2) by seccomp(2), and"
            " pidfd_getfd(2) (Linux 5.6)"
        )
        return False
    return True


def host_path_roots(text: str) -> tuple[str, ...]:
    """Return the directories of the setting `node.host_path_roots`."""
    return tuple(root for part in text.split(",") if (root := part.strip()))


def discover(
    data_dir: DataDir,
    settings: Settings,
    kube: Kube,
    kept: KeptSockets,
    runtimes: Mapping[str, LocalRuntime],
) -> Node:
    """Return this machine as a node; `kept` are the last agent's sockets."""
    cgroups = detect(settings.node.pod_pids_limit)
    isolation = detect_isolation(data_dir)
    return Node(
        data_dir=data_dir,
        settings=settings.node,
        kube=kube,
        events=EventQueue(EventRecorder(kube, "node")),
        cgroups=cgroups,
        identities=Identities(settings.node.pod_network, isolation.user_ids if isolation else None),
        ports=ReservedPorts(kept, settings.node.reserve_seconds),
        isolation=isolation,
        runtimes=runtimes,
        zygotes=ZygotePool(data_dir.zygotes, cgroups, runtimes),
        images=ImageVolumes(kube, ModelStore(data_dir.models, settings.store), settings.registry),
        host_paths=HostPaths(
            data_dir.root,
            host_path_roots(settings.node.host_path_roots),
            isolation.user_ids if isolation else None,
        ),
        mps=Mps(directory_of(data_dir), SYSTEM_USER if isolation else None),
        system_calls=system_call_filter(),
        binds_ports=_binds_ports(isolation),
        runtime_variables=runtime_variables.write(settings.runtimes),
    )
