"""The supervisor's checks of its components, when the kernel refuses them."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.supervisor import supervisor as supervisor_module
from serving.embedded.supervisor.supervisor import Supervisor
from serving.settings import SupervisorSettings
from serving.system import processes
from serving.system.processes import ProcessIdentity
from tests.rig.control_plane.convergence import running, until


async def test_components_run_on_and_the_error_is_logged_once_when_proc_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checks = 0

    def is_alive(_: ProcessIdentity) -> bool:
        nonlocal checks
        checks += 1
        if checks <= 2 * len(supervisor_module.COMPONENTS):
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        return True

    monkeypatch.setattr(supervisor_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(processes, "is_alive", is_alive)
    supervisor = Supervisor(DataDir(tmp_path), (), SupervisorSettings())
    for component in supervisor._components.values():
        component.identity = ProcessIdentity("boot", 1, 1)
    async with running(supervisor.run()) as [keeping]:
        await until(lambda: checks > 3 * len(supervisor_module.COMPONENTS) or keeping.done())
        assert not keeping.done()
    logged = [record.getMessage() for record in caplog.records if "cannot be checked" in record.getMessage()]
    assert len(logged) == len(supervisor_module.COMPONENTS)
    assert all("Too many open files in system" in message for message in logged)


@pytest.mark.parametrize("failing", ["send_signal", "is_alive"])
async def test_component_is_stopped_by_a_later_try_when_proc_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    real, calls = getattr(processes, failing), 0

    def fail_once(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        return real(*arguments)

    monkeypatch.setattr(supervisor_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(processes, failing, fail_once)
    supervisor = Supervisor(DataDir(tmp_path), (), SupervisorSettings())
    child = await asyncio.create_subprocess_exec("sleep", "60")
    supervisor._components["node"].identity = processes.identity_of(child.pid)
    stopping = asyncio.create_task(supervisor.stop("node"))
    assert await child.wait() == -signal.SIGTERM
    await stopping
    assert calls > 1
