"""What a container's monitor makes of the record of its run."""

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.container import stopping, termination_message
from serving.embedded.kubelet.container.launch import Started
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod.container_monitor import ContainerMonitor
from serving.embedded.kubelet.pod.containers import Containers
from serving.embedded.kubelet.pod.lifecycle import ContainerRun
from serving.embedded.kubelet.records import RunDirectory, write_json
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.isolation.cgroup_layout import CgroupLayout


def run_directory(tmp_path: Path) -> RunDirectory:
    """Return the directory of a run that has begun."""
    run = RunDirectory(DataDir(tmp_path).pods / "u" / "containers" / "c" / "0")
    run.begin()
    return run


async def no_hook(_: str, grace: float) -> float:
    return grace


def monitored(
    tmp_path: Path,
    run: RunDirectory,
    blocks: list[tuple[str, str, str]],
    pre_stop: Callable[[str, float], Awaitable[float]] = no_hook,
) -> tuple[ContainerMonitor, Containers]:
    containers = Containers({"containers": [{"name": "c", "image": "i"}]})
    containers.update("c", run=ContainerRun(0))
    node = cast("Node", SimpleNamespace(cgroups=Cgroups(CgroupLayout()), data_dir=DataDir(tmp_path)))
    monitor = ContainerMonitor(
        run,
        containers,
        node,
        PodIdentity("127.0.0.1", None),
        emit=lambda reason, message, *, warning=False: None,
        on_ready=lambda run, headers: None,
        block=lambda *failure: blocks.append(failure),
        pre_stop=pre_stop,
        grace_seconds=lambda: 0.0,
    )
    return monitor, containers


async def test_exit_is_noticed_when_no_descriptor_was_left_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "RETRY_SECONDS", 0.0)
    run = run_directory(tmp_path)
    write_json(run.path / "exit.json", {"code": 3, "signal": 0, "oom": False, "error": ""})
    real, calls = termination_message.read_run, []

    def full_at_first(*args: object) -> ContainerRun:
        calls.append(args)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*args)

    monkeypatch.setattr(termination_message, "read_run", full_at_first)
    monitor, containers = monitored(tmp_path, run, [])
    await asyncio.wait_for(monitor.watch(None), 20)
    state = containers.states["c"].run
    assert state is not None
    assert state.exit is not None
    assert state.exit.code == 3


def ended_shim() -> Started:
    """Return a shim that has ended."""
    connection, shim_end = socket.socketpair()
    shim_end.close()
    pid = os.posix_spawn("/bin/true", ["true"], {})
    return Started(os.pidfd_open(pid), connection, forked=False)


async def test_container_waits_with_the_reason_when_its_shim_ended_before_it_had_recorded_the_start(
    tmp_path: Path,
) -> None:
    run, blocks = run_directory(tmp_path), []
    reason = "OSError: [Errno 28] No space left on device"
    (run.path / "shim.err").write_text(f"Traceback (most recent call last):\n  ...\n{reason}\n")
    monitor, containers = monitored(tmp_path, run, blocks)
    await asyncio.wait_for(monitor.watch(ended_shim()), 20)
    assert containers.states["c"].run is None
    message = f"its container shim ended before it had recorded the start: {reason}"
    assert blocks == [("c", "CreateContainerError", message)]


async def test_container_starts_again_at_once_when_an_agent_was_killed_during_its_start(
    tmp_path: Path,
) -> None:
    run, blocks = run_directory(tmp_path), []
    monitor, containers = monitored(tmp_path, run, blocks)
    await asyncio.wait_for(monitor.watch(None), 20)
    assert containers.states["c"].run is None
    assert blocks == []


async def test_hook_takes_its_time_from_the_grace_period_when_a_probe_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    async def pre_stop(name: str, grace: float) -> float:
        steps.append(("hook", name, grace))
        return grace - 10.0

    async def stop(runs: Sequence[RunDirectory], grace: float) -> None:
        steps.append(("stop", *(run.container for run in runs), grace))

    monkeypatch.setattr(stopping, "stop", stop)
    monitor, containers = monitored(tmp_path, run_directory(tmp_path), [], pre_stop)
    await monitor._stop("container c failed its liveness probe", 30.0)
    assert steps == [("hook", "c", 30.0), ("stop", "c", 20.0)]
    assert not containers.stopping
