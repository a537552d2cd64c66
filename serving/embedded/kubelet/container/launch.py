"""Starts a container: specifies its process, and forks a zygote or executes a shim for it."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from serving import errors
from serving.embedded.kubelet.container import port_binding, volumes
from serving.embedded.kubelet.container.image_volumes import MountedImage
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.records import SHIM_ERRORS, RunDirectory
from serving.embedded.kubelet.resources import cgroup_limits
from serving.embedded.kubelet.resources.cgroups import ContainerCgroups
from serving.embedded.kubelet.resources.hardware import this_hardware
from serving.embedded.kubelet.spawning import spawn_shim
from serving.embedded.kubelet.zygote import eligibility
from serving.embedded.kubelet.zygote.client import ForkedProcess, ForkRequest
from serving.embedded.kubelet.zygote.eligibility import ZygoteKey
from serving.embedded.kubelet.zygote.pool import name_of
from serving.embedded.pod_spec import (
    cpuset,
    environment,
    gpu_limits,
    resource_limits,
    tcp_ports,
    volume_mounts,
)
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.embedded.pod_spec.qos import oom_score_adjustment
from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.images.store import disk
from serving.objects import Object
from serving.resources import names
from serving.resources.formats import file_list
from serving.settings import BACKLOG
from serving.system.files import regular_file
from serving.system.network import sockets

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """A run of a container that is ready to start; its volumes exist."""

    node: Node
    pod: Object
    container: Object
    run: RunDirectory
    specification: dict[str, Any]
    """The specification for the shim (see `prepare`), to which `_complete` adds the cgroups and the nonce."""
    socket: Path | None = None
    """The Unix socket on which the container listens, if it is passed one."""
    fetch: float = 0.0
    """Seconds of fetching its images."""
    verify: float = 0.0
    """Seconds of verifying their seals."""

    @property
    def zygote(self) -> ZygoteKey:
        """The zygote from which the container could be forked."""
        return ZygoteKey(self.pod["metadata"]["namespace"], self.container["image"])


@dataclass(frozen=True)
class Started:
    """A started shim, which records the start and the end of the run itself."""

    pidfd: int
    connection: socket.socket
    """Closes when the start is recorded, or the shim has ended."""
    forked: bool
    remark: str = ""
    """Why a container that could be forked was executed; else empty."""
    not_limited: Mapping[str, str] = field(default_factory=dict)
    """Why a resource of this run could not be limited, by resource."""


async def prepare(
    node: Node, pod: Object, container: Object, run: RunDirectory, identity: PodIdentity
) -> Launch:
    """Make a container's volumes, and return its launch.

    Raises:
        errors.Temporary: an object that the container refers to does not exist yet, or there is no GPU.
        errors.Unavailable: the API did not answer.
    """
    meta = pod["metadata"]
    volumes_ = await volumes.of_container(node, pod, container, identity.user)
    env = await _environment(node, pod, container, identity, volumes_.mounts)
    mounts = list(volumes_.mounts)
    if gpu_limits.wants_gpu(container):
        gpu = await asyncio.to_thread(node.mps.access)
        env |= gpu.env
        mounts += gpu.mounts
    await _set_model_digests(env, volumes_.images)
    socket_path = _socket_path(node, container, identity)
    runtime = node.runtimes.get(container.get("image", ""))
    if runtime is not None:
        env = {**node.runtime_variables, **env}
    specification = {
        "directory": str(run.path),
        "argv": environment.arguments(container, runtime.command if runtime else None, env),
        "env": env,
        "stamp": None,  # adopted zygotes of an older version read it
        "cwd": container.get("workingDir") or "/tmp",  # noqa: S108 private to the container
        "log": str(node.data_dir.pod_log(meta["uid"], container["name"], run.index)),
        "log_bytes": node.settings.log_bytes,
        "cores": sorted(cpuset.requested(meta) or ()),  # numbers of the cores; empty: all
        "oom_score": oom_score_adjustment(pod["spec"], container, this_hardware().memory),
        "user": identity.user,  # user and group id; None: the agent's, without isolation
        "filter": node.system_calls.program.hex(),  # BPF program
        "view": _isolated_files(node, run, mounts) if node.isolation else None,
        "listeners": 0 if socket_path is None else 1,  # number of passed sockets
        "binding": _binding(node, pod, container, identity),
    }
    fetch = sum(image.fetch for image in volumes_.images)
    verify = sum(image.verify for image in volumes_.images)
    return Launch(node, pod, container, run, specification, socket_path, fetch, verify)


async def _environment(
    node: Node, pod: Object, container: Object, identity: PodIdentity, mounts: Sequence[volume_mounts.Mount]
) -> dict[str, str]:
    """Return the variables that the container's spec asks for, with its ConfigMaps and Secrets.

    Without isolation nothing is mounted: values below a mountPath become paths of the volume.

    Raises:
        errors.Temporary: an object that the container refers to does not exist yet.
        errors.Unavailable: the API did not answer.
    """
    namespace = pod["metadata"]["namespace"]
    references = environment.references(container)
    try:
        env = environment.environment(
            pod,
            container,
            ip=identity.address,
            node=node.settings.name,
            programs=str(Path(sys.executable).parent),
            maps=await volumes.config_maps(node, namespace, references.config_maps),
            secrets=await volumes.secrets(node, namespace, references.secrets),
        )
    except environment.Missing as error:
        raise errors.Temporary("CreateContainerConfigError", str(error)) from error
    if node.isolation is not None:
        return env
    sources = {mount.target: mount.source or "" for mount in mounts}
    places = {
        m["name"]: sources[volume_mounts.normal_path(m["mountPath"])]
        for m in container.get("volumeMounts") or []
    }
    return volume_mounts.rewrite(env, container, places)


async def _set_model_digests(env: dict[str, str], images: Sequence[MountedImage]) -> None:
    """Set the variables by which a model server trusts a sealed image without hashing it again."""
    env.pop(names.MODEL_SEALED_ENV, None)  # only the node has verified the seal: the Pod may not claim it
    trees = {image.digest: Path(image.path) for image in images}
    if (tree := trees.get(env.get(names.MODEL_DIGEST_ENV, ""))) is not None:
        env[names.MODEL_SEALED_ENV] = env[names.MODEL_DIGEST_ENV]
        if names.MODEL_FILES_DIGEST_ENV not in env:  # a Pod that an older release has rendered
            env[names.MODEL_FILES_DIGEST_ENV] = await asyncio.to_thread(
                disk.file_digest, tree / file_list.NAME
            )


def _binding(node: Node, pod: Object, container: Object, identity: PodIdentity) -> dict[str, Any] | None:
    """Return which ports the shim binds for the container, for `port_binding.PortBinder`; None for none."""
    ports = tcp_ports.of_container(container, identity)
    if not node.binds_ports or not ports:
        return None
    gateway_port = tcp_ports.gateway_port(pod["metadata"])
    # The gateway marks its connections to replicas if the first two conditions hold (`router.gateway`).
    accepts_only_gateway = (
        node.data_dir.is_of_up
        and sockets.can_mark()
        and port_binding.can_accept_only_marked(sockets.GATEWAY_MARK)
    )
    return {
        "address": identity.address,
        "user": identity.user,
        "ports": ports,
        "gateway_port": gateway_port if accepts_only_gateway else None,
        "mark": sockets.GATEWAY_MARK,
    }


def _socket_path(node: Node, container: Object, identity: PodIdentity) -> Path | None:
    """Return the path of the Pod's Unix socket if this container has its port."""
    ports = {port["containerPort"] for port in container.get("ports") or []}
    if identity.socket is None or identity.socket_port not in ports:
        return None
    return node.data_dir.pod_sockets / identity.socket


def _isolated_files(node: Node, run: RunDirectory, mounts: Sequence[volume_mounts.Mount]) -> dict[str, Any]:
    """Return the container's private view of the files, for `sandbox.enter`."""
    assert node.isolation is not None
    return {
        "tmp": str(run.tmp),
        "cover": list(node.isolation.cover),
        "keep": list(node.isolation.keep),
        "hide": [str(node.data_dir.root.resolve())],
        "mounts": [
            {
                "target": mount.target,
                "source": mount.source,
                "read_only": mount.read_only,
                "is_resolved": mount.is_resolved,
                "is_own": mount.is_own,
                "files": None
                if mount.files is None
                else [[file.path, file.content.hex(), file.mode] for file in mount.files],
            }
            for mount in mounts
        ],
    }


async def await_imports(launch: Launch) -> None:
    """Wait while the zygote of a container that can be forked imports."""
    if _can_fork(launch):
        await launch.node.zygotes.imported(launch.zygote)


def start(launch: Launch, **details: Any) -> Started:
    """Record the run, and start its shim. Blocks for milliseconds, or for a second if the zygote is stuck.

    Args:
        launch: from `prepare`.
        details: further fields of the record, for `RunDirectory.read`: streak and restart_count.

    Raises:
        OSError: the disk or the process table is full.
    """
    run, node = launch.run, launch.node
    request = _request_fork(launch)  # the zygote forks during the next lines
    nonce = run.begin(**details)
    user = launch.specification["user"]
    if user is not None:
        os.chown(run.tmp, user, user)
    log_path = Path(launch.specification["log"])
    log_path.parent.mkdir(parents=True, exist_ok=True)
    # A client may read the log before the shim opens it.
    os.close(regular_file.open_fd(log_path, os.O_WRONLY | os.O_CREAT))
    limits, remark = resource_limits.limits(launch.container), ""
    with _listeners(launch.socket) as listeners:
        try:
            if request is not None:
                return _start_forked(launch, request.result(), limits, nonce, listeners)
        except errors.Temporary as error:
            remark = str(error)  # the container is executed instead
            if error.reason == "ZygoteStuck":
                node.zygotes.check(launch.zygote)
        group = _create_cgroups(launch, limits)
        specification = _complete(launch, group, nonce, join=True)
        run.record_not_limited(group.not_limited)  # for an agent that adopts the run
        isolated = node.isolation is not None
        pidfd, connection = spawn_shim(run.path / SHIM_ERRORS, specification, listeners, isolated=isolated)
        return Started(pidfd, connection, forked=False, remark=remark, not_limited=group.not_limited)


@contextlib.contextmanager
def _listeners(path: Path | None) -> Iterator[list[int]]:
    """Yield the sockets to pass to the container; afterwards it alone has them.

    A socket that nobody has refuses connections, so the gateway sends the request elsewhere. Only this user
    can make another at the path.
    """
    if path is None:
        yield []
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, sockets.short_path(path) as address:
        listener.bind(address)
        listener.listen(BACKLOG)
        yield [listener.fileno()]


def _request_fork(launch: Launch) -> ForkRequest | None:
    """Request a fork if the container can be forked and its zygote listens."""
    zygotes, key = launch.node.zygotes, launch.zygote
    if not _can_fork(launch):
        return None
    try:
        return ForkRequest(zygotes.directory, name_of(key))
    except errors.Temporary as error:
        log.debug("%s in %s: %s", key.image, key.namespace, error)
        return None


def _can_fork(launch: Launch) -> bool:
    """Whether the container can be forked, and its zygote is kept."""
    zygotes = launch.node.zygotes
    return (
        eligibility.can_fork(launch.pod["metadata"], launch.container, zygotes.images)
        and zygotes.has(launch.zygote)
        and eligibility.can_fork_with(launch.specification["env"])
    )


def _start_forked(
    launch: Launch, process: ForkedProcess, limits: ContainerLimits, nonce: str, listeners: Sequence[int]
) -> Started:
    """Make a forked process the shim of the run.

    Raises:
        errors.Temporary: the process cannot take the run, or is gone; the container has not begun.
    """
    try:
        own_limits = cgroup_limits.without_inherited(limits, process.inherited)
        if process.groups:  # the process waits in cgroups of its own
            group = launch.node.cgroups.limit_spare(process.groups, own_limits)
        else:
            group = _create_cgroups(launch, own_limits)
        specification = _complete(launch, group, nonce, join=not process.groups)
        launch.run.record_not_limited(group.not_limited)
    except (ValueError, OSError) as error:
        process.dismiss()
        raise errors.Temporary("NotForked", str(error)) from error
    process.send(specification, listeners)
    return Started(process.pidfd, process.connection, forked=True, not_limited=group.not_limited)


def _create_cgroups(launch: Launch, limits: ContainerLimits) -> ContainerCgroups:
    return launch.node.cgroups.create(launch.pod["metadata"]["uid"], launch.container["name"], limits)


def _complete(launch: Launch, group: ContainerCgroups, nonce: str, *, join: bool) -> bytes:
    """Return the specification for the shim, in JSON.

    Args:
        launch: from `prepare`.
        group: the container's cgroups.
        nonce: of the run's record; a shim with another nonce ends.
        join: whether the container's process has yet to enter its cgroups.
    """
    added = {
        "cgroups": list(group.paths),
        "join": join,
        "kill": group.kill_file,
        "oom": group.oom_file,
        "nonce": nonce,
    }
    return orjson.dumps({**launch.specification, **added})
