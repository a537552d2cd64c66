"""The end and the stop of a container while its agent can open nothing: both come when it can again."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.records import RunDirectory
from serving.system import processes
from serving.system.processes import ProcessIdentity
from tests.rig.machine import descriptors
from tests.rig.machine.launched_run import launched

GRACE_SECONDS = 0.2


@dataclass
class Running:
    """A container that ignores SIGTERM, and exits with 3 when its file `go` exists."""

    run: RunDirectory
    process: ProcessIdentity
    go: Path


@pytest.fixture
def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Running]:
    monkeypatch.setattr(stopping, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, stopping.__name__)
    go = tmp_path / "go"
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    script = f"trap '' TERM; while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    with launched(run, tmp_path / "0.log", script) as started:
        started.connection.recv(1)
        identities = run.identities()
        assert identities is not None
        yield Running(run, identities.main, go)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def test_exit_is_noticed_when_a_descriptor_is_free_again(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with descriptors.none_left():
        end = asyncio.create_task(stopping.ended(running.run))
        await until(lambda: end.done() or "cannot be read" in caplog.text)
        assert not end.done()
    running.go.touch()
    assert await asyncio.wait_for(end, 20)
    recorded = running.run.exit()
    assert recorded is not None
    assert recorded.code == 3


async def test_container_is_stopped_when_a_descriptor_is_free_again(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with descriptors.none_left():
        stop = asyncio.create_task(stopping.stop([running.run], grace=0))
        await until(lambda: stop.done() or "cannot be stopped" in caplog.text)
        assert not stop.done()
    await asyncio.wait_for(stop, 20)
    assert not processes.is_alive(running.process)


async def test_container_is_killed_after_its_grace_when_the_wait_for_its_end_has_failed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pidfd_open, []

    def full_at_first(pid: int) -> int:
        calls.append(pid)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", full_at_first)
    await asyncio.wait_for(stopping.stop([running.run], GRACE_SECONDS), 20)
    assert len(calls) > 1
    assert not processes.is_alive(running.process)


async def test_stop_fails_when_the_wait_for_an_end_fails_for_good(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    run.begin()
    (run.path / "started.json").write_text('{"of": "another version"}')
    with pytest.raises(KeyError):
        await asyncio.wait_for(stopping.stop([run], GRACE_SECONDS), 20)


async def test_stop_fails_when_the_wait_for_an_end_has_a_defect(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: RunDirectory) -> bool:
        raise ValueError("a defect")

    monkeypatch.setattr(stopping, "_ended", fail)
    with pytest.raises(ValueError, match="a defect"):
        await asyncio.wait_for(stopping.stop([running.run], GRACE_SECONDS), 20)
