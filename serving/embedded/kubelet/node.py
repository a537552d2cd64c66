"""What every Pod of this node shares: found out once, when the agent starts."""

import asyncio
import os
import pwd
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import serving
from serving import errors, runtime_variables
from serving.data_dir import DataDir
from serving.embedded.event_queue import EventQueue
from serving.embedded.kubelet.container.image_volumes import Images
from serving.embedded.kubelet.devices.mps import Mps, place
from serving.embedded.kubelet.metrics import Metrics
from serving.embedded.kubelet.pod.addresses import Addresses
from serving.embedded.kubelet.resources.cgroups import Cgroups, detect
from serving.embedded.kubelet.zygote.pool import Zygotes
from serving.images.store.model_store import ModelStore
from serving.kube import EventRecorder, Kube
from serving.settings import NodeSettings, Settings

LAUNCHES_AT_ONCE = 4
"""Containers started at the same moment; more only makes them wait for each other on the processor."""


@dataclass(frozen=True)
class Jail:
    """How containers are kept apart when the agent runs as root."""

    uid: int
    gid: int
    cover: tuple[str, ...]
    """Directories that become empty: homes that the user must not or cannot enter, and the data directory."""
    keep: tuple[str, ...]
    """Directories of the interpreter and the environment, seen read-only at their own paths."""


@dataclass
class Node:
    """This machine."""

    data_dir: DataDir
    settings: NodeSettings
    kube: Kube
    events: EventQueue
    cgroups: Cgroups
    addresses: Addresses
    jail: Jail | None
    zygotes: Zygotes
    images: Images
    mps: Mps
    runtime_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the containers that run a model server of Slipway; those of the Pod come first."""
    metrics: Metrics = field(default_factory=Metrics)
    launching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LAUNCHES_AT_ONCE))


def interpreter_paths() -> tuple[str, ...]:
    """Return the directories without which this Python and Slipway do not run; none is inside another."""
    source = str(Path(next(iter(serving.__path__))).resolve().parent)
    found = sorted({os.path.realpath(sys.base_prefix), sys.prefix, os.path.realpath(sys.prefix), source})
    return tuple(p for p in found if not any(p != other and p.startswith(other + "/") for other in found))


def _closed_ancestor(path: str) -> str | None:
    """Return the topmost directory on the way that other users cannot enter."""
    parts = Path(path).parents
    for directory in sorted(parts, key=lambda p: len(p.parts)):
        if not directory.stat().st_mode & 0o001:
            return str(directory)
    return None


def jail(data_dir: DataDir, user: str) -> Jail | None:
    """Return how to keep containers apart; None for an ordinary user, who cannot.

    Raises:
        errors.Permanent: `user` is root or does not exist.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise errors.Permanent("NoSuchUser", f"settings.node.run_as: there is no user {user!r}") from error
    if entry.pw_uid == 0:
        raise errors.Permanent("RootUser", "settings.node.run_as must not be root")
    keep = interpreter_paths()
    homes = {pwd.getpwuid(0).pw_dir, str(data_dir.root.resolve())}
    homes |= {closed for path in keep if (closed := _closed_ancestor(path))}
    return Jail(entry.pw_uid, entry.pw_gid, tuple(sorted(homes - {"/"})), keep)


def discover(data_dir: DataDir, settings: Settings, kube: Kube) -> Node:
    """Find out what this machine can do."""
    cgroups = detect()
    confined = jail(data_dir, settings.node.run_as)
    return Node(
        data_dir,
        settings.node,
        kube,
        EventQueue(EventRecorder(kube, "node")),
        cgroups,
        Addresses(settings.node.pod_network),
        confined,
        Zygotes(data_dir.zygotes, cgroups),
        Images(kube, ModelStore(data_dir.models, settings.store), settings.registry),
        Mps(place(data_dir), (confined.uid, confined.gid) if confined else None),
        runtime_variables.write(settings.runtimes),
    )
