"""SIGKILL of the shim of a container without a PID namespace: the container's other processes end too."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.records import RunDirectory
from serving.system import processes
from serving.system.processes import ProcessIdentity
from tests.rig.machine.launched_run import launched


@dataclass
class Running:
    """A container whose main process waits for a child."""

    run: RunDirectory
    shim: ProcessIdentity
    process: ProcessIdentity
    child: ProcessIdentity


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    pid = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"
    with launched(run, tmp_path / "0.log", script) as started:
        started.connection.recv(1)
        identities = run.identities()
        assert identities is not None
        asyncio.run(until(pid.exists))
        child = processes.identity_of(int(pid.read_text()))
        assert child is not None
        try:
            yield Running(run, *identities, child)
        finally:
            processes.send_signal(child, signal.SIGKILL)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def kill_shim(running: Running) -> None:
    processes.send_signal(running.shim, signal.SIGKILL)
    await until(lambda: not processes.is_alive(running.shim) and not processes.is_alive(running.process))
    assert processes.is_alive(running.child)


async def test_children_of_a_container_end_when_the_death_of_its_shim_is_noticed(running: Running) -> None:
    await kill_shim(running)
    assert await asyncio.wait_for(stopping.ended(running.run), 20)
    await until(lambda: not processes.is_alive(running.child))


async def test_children_of_a_container_end_when_it_is_stopped_after_the_death_of_its_shim(
    running: Running,
) -> None:
    await kill_shim(running)
    await asyncio.wait_for(stopping.stop([running.run], grace=0), 20)
    await until(lambda: not processes.is_alive(running.child))


async def test_processes_of_its_cgroups_end_when_they_have_left_its_session(
    running: Running, tmp_path: Path
) -> None:
    await kill_shim(running)
    daemon = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    try:
        (tmp_path / "cgroup.procs").write_text(f"{daemon.pid}\n")
        record = running.run.path / "started.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "cgroups": [str(tmp_path)]}))
        assert await asyncio.wait_for(stopping.ended(running.run), 20)
        assert await asyncio.wait_for(daemon.wait(), 20) == -signal.SIGKILL
    finally:
        if daemon.returncode is None:
            daemon.kill()
