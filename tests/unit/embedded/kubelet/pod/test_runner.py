"""A Pod's runner on a played node: its starts, and the ends of its containers."""

import asyncio
import datetime as dt
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.container import launch, stopping
from serving.embedded.kubelet.container.launch import Started
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import lifecycle, termination
from serving.embedded.kubelet.pod.identities import Identities
from serving.embedded.kubelet.pod.lifecycle import ContainerExit, ContainerRun
from serving.embedded.kubelet.pod.runner import PodRunner
from serving.embedded.kubelet.records import PodDirectory, RunDirectory, write_json
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes.conditions import find
from serving.resources.kubernetes.events import EventToEmit
from serving.settings import NodeSettings
from serving.system.isolation.cgroup_layout import CgroupLayout
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until


@dataclass
class PlayedNode:
    """What a runner needs of a node, and the Events that it has emitted."""

    data_dir: DataDir
    events: list[EventToEmit] = field(default_factory=list)

    def node(self) -> Node:
        identities = SimpleNamespace(
            new=lambda *_, **__: PodIdentity("127.0.0.1", None), occupy=lambda _: None
        )
        node = SimpleNamespace(
            kube=FakeKube(),
            data_dir=self.data_dir,
            settings=NodeSettings(),
            events=SimpleNamespace(add=lambda _, event: self.events.append(event)),
            cgroups=Cgroups(CgroupLayout()),
            identities=identities,
            release=lambda _: None,
            isolation=None,
            runtimes={},
            mps=SimpleNamespace(user=None),
            system_calls=SimpleNamespace(missing="", program=b""),
            binds_ports=False,
            launching=asyncio.Semaphore(),
        )
        return cast("Node", node)


HOOK = {"preStop": {"sleep": {"seconds": 3600}}}


def pod(**container: object) -> Object:
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "default"},
        "spec": {
            "nodeName": "local",
            "containers": [{"name": "c", "image": "i", "command": ["run"], **container}],
        },
    }


async def test_back_off_grows_when_each_shim_ends_before_it_has_recorded_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare(_node: Node, _pod: Object, _container: Object, run: object, _: object) -> object:
        return SimpleNamespace(run=run, fetch=0.0, verify=0.0)

    async def await_imports(_: object) -> None:
        return

    def start(prepared: SimpleNamespace, **_: object) -> Started:
        prepared.run.begin()
        (prepared.run.path / "shim.err").write_text("OSError: [Errno 28] No space left on device\n")
        connection, shim_end = socket.socketpair()
        shim_end.close()
        return Started(os.pidfd_open(os.posix_spawn("/bin/true", ["true"], {})), connection, forked=False)

    attempts = []

    def retry_at(attempt: int, now: dt.datetime, settings: NodeSettings) -> dt.datetime:
        attempts.append(attempt)
        return now + dt.timedelta(seconds=settings.blocked_cap_seconds if attempt == 3 else 0)

    monkeypatch.setattr(launch, "prepare", prepare)
    monkeypatch.setattr(launch, "await_imports", await_imports)
    monkeypatch.setattr(launch, "start", start)
    monkeypatch.setattr(lifecycle, "retry_at", retry_at)
    played = PlayedNode(DataDir(tmp_path))
    async with running(PodRunner(played.node(), pod()).run()):
        await until(lambda: len(attempts) == 3)
    assert attempts == [1, 2, 3]
    [reported] = [event for event in played.events if event.reason == "CreateContainerError"]
    assert reported.message.endswith("No space left on device")


@pytest.fixture
def pulling(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a container's image is being pulled, which never ends."""
    begun = asyncio.Event()

    async def prepare(*_: object) -> object:
        begun.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(launch, "prepare", prepare)
    return begun


@pytest.mark.parametrize("by_force", [False, True])
async def test_pod_ends_when_it_is_deleted_during_the_pull_of_its_image(
    tmp_path: Path, pulling: asyncio.Event, *, by_force: bool
) -> None:
    node = PlayedNode(DataDir(tmp_path)).node()
    created = await node.kube.create(kinds.POD, pod())
    runner = PodRunner(node, created)
    ended = asyncio.create_task(runner.run())
    await asyncio.wait_for(pulling.wait(), 20)
    runner.changed(None if by_force else deleted(created, 30))
    await asyncio.wait_for(ended, 20)


async def test_containers_are_reported_during_the_pull_of_an_image(
    tmp_path: Path, pulling: asyncio.Event
) -> None:
    node = PlayedNode(DataDir(tmp_path)).node()
    created = pod()
    created["spec"]["containers"].append({"name": "other", "image": "i", "command": ["run"]})
    runner = PodRunner(node, created)
    async with running(runner.run()):
        await asyncio.wait_for(pulling.wait(), 20)
        await until(lambda: runner._writer.latest.get("phase") == "Pending", "the pull is reported")
        run = ContainerRun(0, started_at=clock.now(), exit=ContainerExit(1, "Error"))
        runner._containers.update("other", run=run)
        await until(lambda: runner._writer.latest["phase"] == "Running", "the end is reported")


async def test_failed_limit_of_a_start_is_in_the_status_of_its_pod_when_the_runner_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare(_node: Node, _pod: Object, _container: Object, run: object, _: object) -> object:
        return SimpleNamespace(run=run, fetch=0.0, verify=0.0)

    async def await_imports(_: object) -> None:
        return

    def start(prepared: SimpleNamespace, **_: object) -> Started:
        prepared.run.begin()
        connection, shim_end = socket.socketpair()
        shim_end.close()
        pidfd = os.pidfd_open(os.posix_spawn("/bin/true", ["true"], {}))
        gone = [1, 0]  # pid and start time
        started = {"boot_id": "another boot", "recorder": gone, "process": gone}
        write_json(prepared.run.path / "started.json", started)
        reasons = {"memory": "memory.max: busy"}
        prepared.run.record_not_limited(reasons)
        return Started(pidfd, connection, forked=True, not_limited=reasons)

    monkeypatch.setattr(launch, "prepare", prepare)
    monkeypatch.setattr(launch, "await_imports", await_imports)
    monkeypatch.setattr(launch, "start", start)
    node = PlayedNode(DataDir(tmp_path)).node()
    limited = pod(resources={"limits": {"memory": "1Gi"}})
    limited["spec"]["restartPolicy"] = "Never"
    first = PodRunner(node, limited)
    assert await limits_message(first) == "memory: memory.max: busy"
    assert await limits_message(first.restarted()) == "memory: memory.max: busy"
    assert node.cgroups.missing == {}


async def limits_message(runner: PodRunner) -> str:
    """Return the message of the condition `LimitsEnforced` after the end of the container."""
    async with running(runner.run()):
        await until(lambda: runner._writer.latest.get("phase") == "Failed")
    enforced = find(runner._writer.latest["conditions"], names.LIMITS_ENFORCED_CONDITION)
    assert enforced is not None
    return str(enforced.get("message", ""))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_ended_pod_only_awaits_its_deletion_when_its_record_is_lost(
    tmp_path: Path, pulling: asyncio.Event, phase: str
) -> None:
    node = PlayedNode(DataDir(tmp_path)).node()
    api = cast("FakeKube", node.kube)
    created = await api.create(kinds.POD, pod())
    stored = await api.apply_status(kinds.POD, created, {"phase": phase})
    runner = PodRunner(node, stored)
    ended = asyncio.create_task(runner.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ended.done()
    assert not pulling.is_set()
    runner.changed(deleted(stored, 30))
    await asyncio.wait_for(ended, 20)
    assert runner._writer.latest == {"phase": phase}
    with pytest.raises(errors.NotFound):
        await api.get(kinds.POD, "default", "p")


@pytest.mark.parametrize(("took", "left"), [(0.0, 30.0), (10.0, 20.0), (29.0, 2.0), (30.0, 2.0)])
async def test_grace_period_includes_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, left: float
) -> None:
    now = 100.0

    async def run_pre_stop(_hook: object, _target: object, grace: float, _gone: object) -> None:
        nonlocal now
        assert grace == 30.0
        now += took

    monkeypatch.setattr(termination, "run_pre_stop", run_pre_stop)
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    runner = PodRunner(PlayedNode(DataDir(tmp_path)).node(), pod(lifecycle=HOOK))
    runner._containers.update("c", run=ContainerRun(0))
    assert await runner._pre_stop("c", 30.0) == left


async def test_hook_ends_with_its_container(tmp_path: Path) -> None:
    runner = PodRunner(PlayedNode(DataDir(tmp_path)).node(), pod(lifecycle=HOOK))
    runner._containers.update("c", run=ContainerRun(0))
    hook = asyncio.create_task(runner._pre_stop("c", 3600.0))
    await asyncio.sleep(0)
    assert not hook.done()
    runner._containers.update("c", run=ContainerRun(0, exit=ContainerExit(0, "Completed")))
    assert await asyncio.wait_for(hook, 20) > 3000


async def test_hook_ends_when_its_pod_is_deleted_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(termination, "run_pre_stop", hang)
    runner = PodRunner(PlayedNode(DataDir(tmp_path)).node(), pod(lifecycle=HOOK))
    runner._containers.update("c", run=ContainerRun(0))
    hook = asyncio.create_task(runner._pre_stop("c", 3600.0))
    await asyncio.sleep(0)
    runner.changed(None)
    await asyncio.wait_for(hook, 20)


async def test_no_hook_runs_when_there_is_no_grace_period(tmp_path: Path) -> None:
    runner = PodRunner(PlayedNode(DataDir(tmp_path)).node(), pod(lifecycle=HOOK))
    runner._containers.update("c", run=ContainerRun(0))
    assert await asyncio.wait_for(runner._pre_stop("c", 0.0), 20) == 0.0


async def test_containers_of_a_deleted_pod_end_after_their_own_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def pre_stop(name: str, grace: float) -> float:
        if name == "slow":
            await asyncio.Event().wait()
        return grace - 10.0

    async def stop(runs: Sequence[RunDirectory], grace: float, _: asyncio.Event) -> None:
        ended.extend((run.container, grace) for run in runs)

    monkeypatch.setattr(stopping, "stop", stop)
    created = pod(name="quick")
    created["spec"]["containers"].append({"name": "slow", "image": "i", "command": ["run"]})
    created["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    runner = PodRunner(PlayedNode(DataDir(tmp_path)).node(), created)
    monkeypatch.setattr(runner, "_pre_stop", pre_stop)
    for name in ("quick", "slow"):
        runner._containers.update(name, run=ContainerRun(0))
    async with running(runner._terminate()):
        await until(lambda: bool(ended))
    assert ended == [("quick", 20.0)]


def deleted(created: Object, grace: float) -> Object:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    return {**created, "metadata": {**created["metadata"], **meta}}


@pytest.mark.parametrize(
    ("container", "waits_for"),
    [({}, "program"), ({"lifecycle": HOOK}, "hook"), ({"ports": [{"containerPort": 80}]}, "drain")],
)
async def test_grace_period_ends_early_when_another_deletion_shortens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, container: Object, waits_for: str
) -> None:
    stops: list[float] = []
    killed = asyncio.Event()

    async def stop(_runs: object, grace: float, hurry: asyncio.Event) -> None:
        stops.append(grace)
        await termination.pause(grace, hurry)
        killed.set()

    monkeypatch.setattr(termination, "LEAST_GRACE_SECONDS", 0.02)
    monkeypatch.setattr(stopping, "stop", stop)
    node = PlayedNode(DataDir(tmp_path)).node()
    monkeypatch.setattr(node, "settings", NodeSettings(drain_seconds=300 if waits_for == "drain" else 0))
    runner = PodRunner(node, deleted(pod(**container), 300))
    runner._containers.update("c", run=ContainerRun(0), ready=True)
    async with running(runner._terminate()):
        await asyncio.sleep(0)
        if waits_for == "program":
            await until(lambda: bool(stops))
        runner.changed(deleted(runner.pod, 0.01))
        await asyncio.wait_for(killed.wait(), 5)
    assert stops[0] == {"program": 300.0, "hook": 0.02, "drain": 0.01}[waits_for]


def test_address_of_a_pod_is_free_when_the_disk_is_full_at_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    identities = Identities("127.77", None)
    node = PlayedNode(DataDir(tmp_path)).node()
    monkeypatch.setattr(node, "identities", identities)
    monkeypatch.setattr(PodDirectory, "save", save)
    with pytest.raises(OSError, match="No space left"):
        PodRunner(node, pod())._assign_identity()
    assert not identities._taken
