"""Starts a container: says what it is to be, and has a zygote forked or an exit recorder executed for it."""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from serving import errors
from serving.embedded.kubelet.container import environment, volume_mounts, volumes
from serving.embedded.kubelet.devices import cpuset, gpu_limits
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.kubelet.resources import cgroup_limits
from serving.embedded.kubelet.resources.cgroups import Group
from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.embedded.kubelet.spawning import spawn_recorder
from serving.embedded.kubelet.zygote import eligibility
from serving.embedded.kubelet.zygote.client import Asked, Forked
from serving.embedded.kubelet.zygote.eligibility import Kept
from serving.embedded.kubelet.zygote.pool import IMAGES
from serving.objects import Object
from serving.resources import names

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """One run of a container that is about to start; its volumes are there."""

    node: Node
    pod: Object
    container: Object
    run: RunDirectory
    specification: dict[str, Any]
    """What the exit recorder needs to know, but for the cgroups and the nonce."""
    fetch: float = 0.0
    """Seconds that getting its images took."""
    verify: float = 0.0
    """Seconds that checking their seals took."""


@dataclass(frozen=True)
class Started:
    """A recorder that has been started, and will record the run's start or end itself."""

    handle: int
    """Its pidfd."""
    connection: socket.socket
    """Ends when the start is recorded, or the recorder has ended."""
    forked: bool
    remark: str = ""
    """Why there was no fork where one could be expected."""


async def prepare(node: Node, pod: Object, container: Object, run: RunDirectory, address: str) -> Launch:
    """Return all that is needed to start a container, with its volumes made.

    Raises:
        errors.Temporary: something that the container refers to is not there yet, or there is no GPU for it.
        errors.Unavailable: the API did not answer.
    """
    meta = pod["metadata"]
    maps, secrets = environment.references(container)
    found = await volumes.of_container(node, pod, container)
    try:
        env = environment.environment(
            pod,
            container,
            ip=address,
            node=node.settings.name,
            maps=await volumes.config_maps(node, meta["namespace"], maps),
            secrets=await volumes.secrets(node, meta["namespace"], secrets),
        )
    except environment.Missing as error:
        raise errors.Temporary("CreateContainerConfigError", str(error)) from error
    if node.jail is None:
        places = {
            m["name"]: mounts_source(found.mounts, m["mountPath"])
            for m in container.get("volumeMounts") or []
        }
        env = volume_mounts.rewrite(env, container, places)
    mounts = list(found.mounts)
    if gpu_limits.wanted(container):
        gpu = await asyncio.to_thread(node.mps.access)
        env |= gpu.env
        mounts += gpu.mounts
    env.pop(names.MODEL_SEALED_ENV, None)
    if env.get(names.MODEL_DIGEST_ENV) in {image.digest for image in found.images}:
        env[names.MODEL_SEALED_ENV] = env[names.MODEL_DIGEST_ENV]
    runtime = RUNTIMES.get(container.get("image", ""))
    if runtime is not None:
        env = {**node.runtime_variables, **env}
    specification = {
        "directory": str(run.path),
        "argv": environment.arguments(container, runtime.command if runtime else None, env),
        "env": env,
        "stamp": names.SPAWNED_ENV if runtime and runtime.module else None,
        "cwd": container.get("workingDir") or "/tmp",  # noqa: S108 private to the container
        "log": str(node.data_dir.pod_log(meta["uid"], container["name"], run.index)),
        "log_bytes": node.settings.log_bytes,
        "cores": sorted(cpuset.wanted(meta) or ()),
        "user": [node.jail.uid, node.jail.gid] if node.jail else None,
        "view": _view(node, run, mounts) if node.jail else None,
    }
    fetch = sum(image.fetch for image in found.images)
    verify = sum(image.verify for image in found.images)
    return Launch(node, pod, container, run, specification, fetch, verify)


def mounts_source(mounts: Sequence[volume_mounts.Mount], target: str) -> str:
    """Return where the volume that is mounted there lies."""
    return next(m.source or "" for m in mounts if m.target == os.path.normpath(target))


def _view(node: Node, run: RunDirectory, mounts: Sequence[volume_mounts.Mount]) -> dict[str, Any]:
    assert node.jail is not None
    return {
        "tmp": str(run.tmp),
        "cover": list(node.jail.cover),
        "keep": list(node.jail.keep),
        "hide": [str(node.data_dir.root.resolve())],
        "mounts": [
            {
                "target": mount.target,
                "source": mount.source,
                "read_only": mount.read_only,
                "files": None
                if mount.files is None
                else [[name, content.hex(), mode] for name, content, mode in mount.files],
            }
            for mount in mounts
        ],
    }


def start(launch: Launch, **known: Any) -> Started:
    """Record the run, with what else is `known` of it, and start its recorder. Blocks for milliseconds.

    Raises:
        OSError: the disk or the process table is full.
    """
    run, node = launch.run, launch.node
    asked = _ask(launch)
    nonce = run.begin(**known)  # while the zygote forks
    if node.jail is not None:
        os.chown(run.tmp, node.jail.uid, node.jail.gid)
    log_path = Path(launch.specification["log"])
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log_path.touch(0o600)  # who hears of the run may ask for its log before the recorder opens it
    limits, remark = cgroup_limits.limits(launch.container), ""
    try:
        if asked is not None:
            forked = asked.answer()
            return _fork(launch, forked, limits, nonce)
    except errors.Temporary as error:
        remark = str(error)
        if error.reason == "ZygoteStuck":
            node.zygotes.distrust(_kept(launch))
    confined = _confined(launch, _created(launch, limits), nonce, join=True)
    handle, connection = spawn_recorder(run.path / "recorder.err", confined)
    return Started(handle, connection, forked=False, remark=remark)


def _fork(launch: Launch, forked: Forked, limits: cgroup_limits.Limits, nonce: str) -> Started:
    """Start it in a forked process.

    Raises:
        errors.Temporary: it cannot be, or the process has gone; nothing of the container has run.
    """
    try:
        own = cgroup_limits.without_inherited(limits, forked.inherited)
        if forked.groups:
            group = launch.node.cgroups.take(forked.groups, own)
            confined = _confined(launch, group, nonce, join=False)
        else:
            confined = _confined(launch, _created(launch, own), nonce, join=True)
    except (ValueError, OSError) as error:
        forked.dismiss()
        raise errors.Temporary("NotForked", str(error)) from error
    forked.give(confined)
    return Started(forked.handle, forked.connection, forked=True)


def _created(launch: Launch, limits: cgroup_limits.Limits) -> Group:
    return launch.node.cgroups.create(launch.pod["metadata"]["uid"], launch.container["name"], limits)


def _confined(launch: Launch, group: Group, nonce: str, *, join: bool) -> bytes:
    """Return the whole specification; the container is to `join` its cgroups, or is in them already."""
    own = {
        "cgroups": list(group.paths),
        "join": join,
        "kill": group.kill_file,
        "oom": group.oom_file,
        "nonce": nonce,
    }
    return orjson.dumps({**launch.specification, **own})


def _kept(launch: Launch) -> Kept:
    return Kept(launch.pod["metadata"]["namespace"], launch.container["image"])


def _ask(launch: Launch) -> Asked | None:
    """Ask for a fork where the container may be forked and a zygote is kept for it."""
    if not eligibility.can_fork(launch.pod["metadata"], launch.container, IMAGES):
        return None
    zygotes, kept = launch.node.zygotes, _kept(launch)
    name = zygotes.place(kept)
    if name is None or not eligibility.honoured(launch.specification["env"]):
        return None
    try:
        return Asked(zygotes.directory, name)
    except errors.Temporary as error:
        log.debug("%s in %s: %s", kept.image, kept.namespace, error)
        return None
