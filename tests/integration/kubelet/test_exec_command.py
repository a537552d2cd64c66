"""Commands in containers: their wait for its program, their variables, and their end."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serving.embedded.kubelet.container import exec_command
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.spawning import shim_command
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system import processes
from tests.rig.control_plane.convergence import until


def target(pid: int) -> RunningContainer:
    node = SimpleNamespace(
        cgroups=SimpleNamespace(paths=lambda *_: []), system_calls=SimpleNamespace(program=b"")
    )
    return RunningContainer(cast("Node", node), "uid", {"name": "main"}, PodIdentity("", None), pid)


async def test_command_waits_when_the_process_of_the_container_is_a_fork_of_its_shim() -> None:
    connection, shim_end = socket.socketpair()
    with connection, shim_end:
        shim = subprocess.Popen(shim_command("main"), stdin=shim_end, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 fast
        try:
            with pytest.raises(TimeoutError):
                await exec_command.run(target(shim.pid), ["true"], 0.5)
        finally:
            shim.kill()
            shim.wait()


async def test_command_has_the_variables_of_the_container_when_its_program_runs() -> None:
    program = [sys.executable, "-c", "import time; time.sleep(99)"]
    with subprocess.Popen(program, env={"PATH": os.defpath, "OWN": "x"}) as process:  # noqa: ASYNC220 fast
        try:
            code = await exec_command.run(target(process.pid), ["sh", "-c", "test $OWN = x"], 20.0)
        finally:
            process.kill()
    assert code == 0


@pytest.mark.parametrize("ends_by", ["timeout", "cancellation"])
async def test_children_of_a_command_end_when_it_is_killed(tmp_path: Path, ends_by: str) -> None:
    note = tmp_path / "pid"
    argv = ["sh", "-c", f"sleep 1000 & echo $! > {note}.new; mv {note}.new {note}; wait"]
    with subprocess.Popen(["sleep", "99"], env={"PATH": os.defpath}) as process:  # noqa: ASYNC220 fast
        try:
            seconds = 3.0 if ends_by == "timeout" else 60.0
            command = asyncio.create_task(exec_command.run(target(process.pid), argv, seconds))
            await until(note.exists)
            if ends_by == "cancellation":
                command.cancel()
            await asyncio.wait([command], timeout=20)
            assert command.done()
            assert command.cancelled() or isinstance(command.exception(), TimeoutError)
        finally:
            process.kill()
    await until(lambda: processes.identity_of(int(note.read_text())) is None, "the child has ended")
