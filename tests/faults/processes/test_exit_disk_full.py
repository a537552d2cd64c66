"""The end of a container on a full disk: recorded when there is room, and no obstacle to its removal."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.records import RunDirectory
from serving.system import processes
from serving.system.processes import ProcessIdentity
from tests.rig.machine.full_disk import small_file_system, top_up
from tests.rig.machine.launched_run import launched


@dataclass
class Running:
    """A container that exits with 3 when its file `go` exists; its records are on a disk that is full."""

    run: RunDirectory
    shim: ProcessIdentity
    process: ProcessIdentity
    pidfd: int
    ballast: Path
    go: Path


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    go = tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    with small_file_system(tmp_path / "small", "size=1m") as small:
        run = RunDirectory(small / "run" / "c" / "0")
        with launched(run, tmp_path / "0.log", script) as started:
            started.connection.recv(1)
            identities = run.identities()
            assert identities is not None
            top_up(small / "ballast")
            yield Running(run, *identities, os.dup(started.pidfd), small / "ballast", go)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def test_exit_code_survives_a_full_disk(running: Running) -> None:
    running.go.touch()
    end = asyncio.create_task(stopping.ended(running.run, running.pidfd))
    await until(lambda: not processes.is_alive(running.process))
    assert processes.is_alive(running.shim)
    assert not end.done()
    running.ballast.unlink()
    assert await asyncio.wait_for(end, 20)
    recorded = running.run.exit()
    assert recorded is not None
    assert recorded.code == 3


async def test_killed_shim_is_recorded_when_the_disk_has_room(running: Running) -> None:
    end = asyncio.create_task(stopping.ended(running.run, running.pidfd))
    processes.send_signal(running.shim, signal.SIGKILL)
    await until(lambda: not processes.is_alive(running.process))
    assert running.run.exit() is None
    assert not end.done()
    running.ballast.unlink()
    assert await asyncio.wait_for(end, 20)
    assert running.run.exit() is not None


async def test_container_stops_while_the_disk_is_full(running: Running) -> None:
    os.close(running.pidfd)
    await asyncio.wait_for(stopping.stop([running.run], grace=0), 20)
    assert not processes.is_alive(running.shim)
    assert not processes.is_alive(running.process)
