"""SIGKILL of every process of ours in turn, under load: no request fails, no replica restarts, and it works afterwards."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.cli import traffic
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import conditions, kinds
from serving.system import processes
from tests.rig import stack as stacks
from tests.rig.stack import NAMESPACE, Load, Stack, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def kube(stack: Stack) -> AsyncIterator[Kube]:
    arms = stacks.predictors(stable=("v-1", 90), candidate=("v-2", 10))
    async with stacks.deployed(stack, "digits", arms) as client:
        await until(client, kinds.INFERENCE, "digits", stacks.settled)
        yield client


async def shifts(kube: Kube, load: Load) -> None:
    """A change of weights is taken: all to one arm, then back. Every answer after a gateway's word is of that arm."""
    for arm, other in (("candidate", "stable"), ("stable", "candidate")):
        changed = await traffic.shift(kube, NAMESPACE, "digits", {arm: 1, other: 0})
        await traffic.accepted(kube, changed, 30)
        asked = await load.more(20)
        assert {answer.arm for answer in load.since(asked)} == {arm}
    await traffic.shift(kube, NAMESPACE, "digits", {"stable": 90, "candidate": 10})


async def replaced(stack: Stack, kube: Kube, before: dict[str, processes.ProcessIdentity | None]) -> None:
    """Wait until other processes run as these components, and the API answers."""

    def again(_: object) -> bool:
        now = {name: stack.component(name) for name in before}
        return all(now[name] not in (None, who) for name, who in before.items())

    await until(kube, kinds.INFERENCE, "digits", again)


@pytest.mark.parametrize("name", COMPONENTS)
async def test_a_killed_component_costs_no_request_and_no_replica(
    stack: Stack, kube: Kube, name: str
) -> None:
    replicas = await stack.replicas(kube, "digits")
    async with stack.load("digits") as load:
        who = stack.component(name)
        assert who is not None
        assert processes.send_signal(who, signal.SIGKILL)
        await load.more(50)
        await replaced(stack, kube, {name: who})
        await shifts(kube, load)
    assert load.failed == []
    assert await stack.replicas(kube, "digits") == replicas


async def test_a_killed_up_costs_no_request_and_the_next_one_takes_over(stack: Stack, kube: Kube) -> None:
    replicas = await stack.replicas(kube, "digits")
    components = {name: stack.component(name) for name in COMPONENTS}
    async with stack.load("digits") as load:
        assert stack.up is not None
        stack.up.kill()
        stack.up.wait()
        await shifts(kube, load)
        stack.start()
        assert {name: stack.component(name) for name in COMPONENTS} == components
        await shifts(kube, load)
    assert load.failed == []
    assert await stack.replicas(kube, "digits") == replicas


async def test_all_killed_at_once_cost_no_request_and_the_next_up_takes_over(
    stack: Stack, kube: Kube
) -> None:
    replicas = await stack.replicas(kube, "digits")
    components = {name: stack.component(name) for name in COMPONENTS}
    async with stack.load("digits") as load:
        assert stack.up is not None
        stack.up.kill()
        stack.up.wait()
        for who in components.values():
            assert who is not None
            assert processes.send_signal(who, signal.SIGKILL)
        await load.more(100)
        stack.start()
        await replaced(stack, kube, components)
        await shifts(kube, load)
    assert load.failed == []
    assert await stack.replicas(kube, "digits") == replicas


def after_reboot(record: Any, stranger: processes.ProcessIdentity) -> Any:
    """Return a record of processes as it may read after a reboot: all of its numbers are a stranger's by now."""
    match record:
        case {"pid": _, "start_time": start, **rest}:
            fields = {"pid": stranger.pid, "start_time": type(start)(stranger.start_time)}
        case {"recorder": _, "process": _, **rest}:
            who = [stranger.pid, stranger.start_time]
            fields = {"recorder": who, "process": who}
        case _:
            raise AssertionError(record)
    return {**rest, **fields, "boot_id": "00000000-0000-0000-0000-000000000000"}


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


async def test_after_a_reboot_everything_starts_again_and_no_stranger_is_taken_for_ours(
    stack: Stack, kube: Kube
) -> None:
    data = stack.data_dir
    before = await stack.replicas(kube, "digits")
    records = [
        *data.run.glob("*.json"), data.gateway / "envoy.json",
        *data.pods.glob("*/containers/*/*/started.json"),
    ]  # fmt: skip
    records = [path for path in records if path != data.ports]
    assert len(records) == len(COMPONENTS) + 2 + len(before)
    pods = await stacks.pods(kube, "digits")
    envoy = processes.identity_of(json.loads((data.gateway / "envoy.json").read_text())["pid"])
    assert stack.up is not None
    stack.up.kill()
    stack.up.wait()
    for who in [*map(stack.component, COMPONENTS), envoy, *(p for pod in pods for p in stack.processes(pod))]:
        assert who is not None
        processes.send_signal(who, signal.SIGKILL)
    sleeper = await asyncio.create_subprocess_exec("/bin/sleep", "600")
    try:
        stranger = processes.identity_of(sleeper.pid)
        assert stranger is not None
        for path in records:
            path.write_text(json.dumps(after_reboot(json.loads(path.read_text()), stranger)))
        stack.start()
        async with await connect(data.kubeconfig, component="test") as again:
            for name in before:
                await until(
                    again,
                    kinds.POD,
                    name,
                    lambda pod: restarts(pod) == 1 and conditions.is_true(pod, "Ready"),
                )
            await until(again, kinds.INFERENCE, "digits", stacks.settled)
            async with stack.load("digits") as load:
                await load.more(50)
            after = await stack.replicas(again, "digits")
        assert sleeper.returncode is None
        assert processes.is_alive(stranger)
    finally:
        sleeper.kill()
        await sleeper.wait()
    assert load.failed == []
    assert after.keys() == before.keys()
    assert all(who.pid != stranger.pid for who, _ in after.values())
