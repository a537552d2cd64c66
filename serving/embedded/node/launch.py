"""Starts a container's exit recorder, and commands inside a running container."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

import serving
from serving import errors
from serving.embedded.node import volumes
from serving.embedded.node.context import Jail, Node
from serving.embedded.node.records import RunDirectory
from serving.embedded.workloads import pod_cgroups, pod_env, pod_mounts
from serving.kube.client import Object

_ROOT = str(Path(next(iter(serving.__path__))).parent)
_BOOT = "import sys; sys.path.append(sys.argv[1]); from serving.embedded.node import recorder; recorder.{}()"


def _python(function: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _BOOT.format(function), _ROOT]


async def specification(
    node: Node, pod: Object, container: Object, run: RunDirectory, address: str
) -> dict[str, Any]:
    """Return what the exit recorder needs to know, with volumes and cgroups made.

    Raises:
        errors.Temporary: something that the container refers to is not there yet.
        errors.Unavailable: the API did not answer.
    """
    meta = pod["metadata"]
    maps, secrets = pod_env.references(container)
    mounts = await volumes.mounts(node, pod, container)
    try:
        env = pod_env.environment(
            pod,
            container,
            ip=address,
            node=node.settings.name,
            maps=await volumes.config_maps(node, meta["namespace"], maps),
            secrets=await volumes.secrets(node, meta["namespace"], secrets),
        )
    except pod_env.Missing as error:
        raise errors.Temporary("CreateContainerConfigError", str(error)) from error
    if node.jail is None:
        places = {
            m["name"]: mounts_source(mounts, m["mountPath"]) for m in container.get("volumeMounts") or []
        }
        env = pod_mounts.rewrite(env, container, places)
    group = node.cgroups.create(meta["uid"], container["name"], pod_cgroups.limits(container))
    log = node.data_dir.pod_log(meta["uid"], container["name"], run.index)
    log.parent.mkdir(parents=True, exist_ok=True)
    return {
        "directory": str(run.path),
        "argv": pod_env.arguments(container, node.images.get(container.get("image", "")), env),
        "env": env,
        "cwd": container.get("workingDir") or "/tmp",  # noqa: S108 private to the container
        "cgroups": list(group.paths),
        "kill": group.kill_file,
        "oom": group.oom_file,
        "log": str(log),
        "log_bytes": node.settings.log_bytes,
        "user": [node.jail.uid, node.jail.gid] if node.jail else None,
        "view": _view(node, run, mounts) if node.jail else None,
    }


def mounts_source(mounts: Sequence[pod_mounts.Mount], target: str) -> str:
    """Return where the volume that is mounted there lies."""
    return next(m.source or "" for m in mounts if m.target == os.path.normpath(target))


def _view(node: Node, run: RunDirectory, mounts: Sequence[pod_mounts.Mount]) -> dict[str, Any]:
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


def spawn_recorder(run: RunDirectory, spec: Mapping[str, Any], jail: Jail | None, **known: Any) -> int:
    """Record the run and start its recorder in a session of its own; returns its pidfd. Blocks for milliseconds."""
    nonce = run.begin(**known)
    if jail is not None:
        os.chown(run.tmp, jail.uid, jail.gid)
    Path(spec["log"]).touch(0o600)  # who hears of the run may ask for its log before the recorder opens it
    with open(run.path / "recorder.err", "wb") as errors_file:  # noqa: PTH123 a descriptor is wanted
        pid, write_end = _spawn(_python("main"), errors_file.fileno(), {"PATH": os.defpath})
    with contextlib.suppress(BrokenPipeError), open(write_end, "wb") as pipe:  # noqa: PTH123 a descriptor
        pipe.write(orjson.dumps({**spec, "nonce": nonce}))
    return os.pidfd_open(pid)


def _spawn(argv: list[str], stderr: int, env: Mapping[str, str]) -> tuple[int, int]:
    """Start a process that no death of this one ends; returns (pid, write end of its standard input)."""
    read_end, write_end = os.pipe()
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, read_end, 0),
            (os.POSIX_SPAWN_DUP2, devnull, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    except OSError:
        os.close(write_end)
        raise
    else:
        return pid, write_end
    finally:
        os.close(read_end)
        os.close(devnull)


async def gone(handle: int) -> None:
    """Wait until the process of a pidfd has ended, child or not, and close the descriptor."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 it has ended: no wait
        os.close(handle)


@dataclass(frozen=True)
class Target:
    """A running container."""

    node: Node
    uid: str
    container: Object
    address: str
    pid: int

    def environment(self) -> dict[str, str]:
        """Return the environment that its main process was started with."""
        raw = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        return dict(entry.decode(errors="replace").split("=", 1) for entry in raw if b"=" in entry)


async def inside(target: Target, argv: list[str], timeout: float) -> int:
    """Run a command in the container's cgroups and view, as its user; returns the exit status.

    Raises:
        TimeoutError: it took longer than `timeout` seconds, and was killed.
        OSError: the container is gone.
    """
    spec = {
        "argv": argv,
        "env": target.environment(),
        "cwd": "/tmp",  # noqa: S108 private to the container
        "pid": target.pid,
        "cgroups": target.node.cgroups.paths(target.uid, target.container["name"]),
        "user": [target.node.jail.uid, target.node.jail.gid] if target.node.jail else None,
    }
    process = await asyncio.create_subprocess_exec(
        *_python("run_inside"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath},
    )
    try:
        await asyncio.wait_for(process.communicate(orjson.dumps(spec)), timeout)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode
