"""Runs a command inside a running container: exec probes and preStop hooks."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import orjson

from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.spawning import shim_command
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.objects import Object

POLL_SECONDS = 0.01
"""Between checks whether a container's program runs."""


@dataclass(frozen=True)
class RunningContainer:
    """A container whose main process runs."""

    node: Node
    pod_uid: str
    container: Object
    """As in the Pod's spec."""
    identity: PodIdentity
    pid: int

    def socket(self, port: int) -> Path | None:
        """Return the Unix socket of a port; None where the container listens by TCP."""
        identity = self.identity
        if identity.socket is None or port != identity.socket_port:
            return None
        return self.node.data_dir.pod_sockets / identity.socket

    def has_begun(self) -> bool:
        """Whether the main process runs its program: before, it is a fork of the shim.

        Raises:
            OSError: the process is gone.
        """
        line = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        # Empty at an exec, until the kernel has set the places of arguments and environment.
        return line not in (b"", b"".join(os.fsencode(word) + b"\0" for word in shim_command("main")))

    def environment(self) -> dict[str, str]:
        """Return the environment with which its main process was executed.

        `zygote.eligibility` lets no container fork that runs commands: a forked process shows the zygote's.
        """
        entries = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


async def run(target: RunningContainer, argv: list[str], timeout: float) -> int:
    """Run a command in the container's cgroups and namespaces, as its user; return the exit status.

    Waits until the container's program runs: before, its process has other variables and namespaces.

    Raises:
        TimeoutError: the wait and the command took longer than `timeout` seconds; the command and its
            children were killed, as by a cancellation.
        OSError: the container is gone.
    """
    async with asyncio.timeout(timeout):
        while not target.has_begun():  # noqa: ASYNC110 the kernel reports no exec
            await asyncio.sleep(POLL_SECONDS)
        return await _run(target, argv)


async def _run(target: RunningContainer, argv: list[str]) -> int:
    """As `run`, in a container whose program runs."""
    spec = {
        "argv": argv,
        "env": target.environment(),
        "cwd": "/tmp",  # noqa: S108 private to the container
        "pid": target.pid,
        "cgroups": target.node.cgroups.paths(target.pod_uid, target.container["name"]),
        "cores": sorted(os.sched_getaffinity(target.pid)),
        "user": target.identity.user,
        "filter": target.node.system_calls.program.hex(),
    }
    process = await asyncio.create_subprocess_exec(
        *shim_command("run_inside"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath},
        start_new_session=True,
    )
    try:
        await process.communicate(orjson.dumps(spec))
    except asyncio.CancelledError:
        if process.returncode is None:  # else another group may have the number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode
