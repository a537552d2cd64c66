"""SIGKILL of each component in turn, under load: no request fails and no replica restarts."""

import asyncio
import contextlib
import json
import signal
from typing import Any

import aiohttp
import pytest

from serving.cli import traffic
from serving.embedded.supervisor import zygote
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube, connect
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.settings import DEFAULTS
from serving.system import processes
from tests.rig.machine import kept_sockets
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, LiveStack, SteadyLoad, until

pytestmark = pytest.mark.slow


async def shifts(kube: Kube, load: SteadyLoad) -> None:
    """Shift all weight to one arm and back. Once a gateway accepts, every response is of that arm."""
    for arm, other_arm in (("canary", "stable"), ("stable", "canary")):
        changed = await traffic.shift(kube, NAMESPACE, "digits", {arm: 1, other_arm: 0})
        await traffic.accepted(kube, changed, 30)
        sent = await load.more(20)
        assert {response.arm for response in load.since(sent)} == {arm}
    await traffic.shift(kube, NAMESPACE, "digits", {"stable": 90, "canary": 10})


async def replaced(
    stack: LiveStack, kube: Kube, old_processes: dict[str, processes.ProcessIdentity | None]
) -> None:
    """Wait until other processes run as these components, and the API answers."""

    def are_replaced(_: object) -> bool:
        current = {name: stack.component(name) for name in old_processes}
        return all(current[name] not in (None, old_process) for name, old_process in old_processes.items())

    await until(kube, kinds.INFERENCE, "digits", are_replaced)


@pytest.mark.parametrize("name", COMPONENTS)
async def test_killed_component_loses_no_request_and_no_replica(
    stack: LiveStack, kube: Kube, name: str
) -> None:
    replicas = await stack.replicas(kube, "digits")
    async with stack.load("digits") as load:
        component = stack.component(name)
        assert component is not None
        assert processes.send_signal(component, signal.SIGKILL)
        await load.more(50)
        await replaced(stack, kube, {name: component})
        await shifts(kube, load)
    assert load.failed == []
    assert await stack.replicas(kube, "digits") == replicas


async def test_killed_up_loses_no_request_and_the_next_one_takes_over(stack: LiveStack, kube: Kube) -> None:
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


async def test_no_request_is_lost_when_all_are_killed_and_the_next_up_takes_over(
    stack: LiveStack, kube: Kube
) -> None:
    replicas = await stack.replicas(kube, "digits")
    components = {name: stack.component(name) for name in COMPONENTS}
    async with stack.load("digits") as load:
        assert stack.up is not None
        stack.up.kill()
        stack.up.wait()
        for component in components.values():
            assert component is not None
            assert processes.send_signal(component, signal.SIGKILL)
        await load.more(100)
        stack.start()
        await replaced(stack, kube, components)
        await shifts(kube, load)
    assert load.failed == []
    assert await stack.replicas(kube, "digits") == replicas


async def statuses_of_new_connections(stack: LiveStack, count: int) -> set[int]:
    async def status() -> int:
        url = f"http://{stack.gateway}/{NAMESPACE}/digits/v2/models/digits"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status

    return set(await asyncio.gather(*(status() for _ in range(count))))


async def test_new_connections_wait_for_the_next_envoy_when_gateway_and_envoy_are_killed(
    stack: LiveStack, kube: Kube
) -> None:
    envoy = EnvoyProcess(stack.data_dir, DEFAULTS.gateway)

    def kill() -> RunningEnvoy:
        running = envoy.running()
        assert running is not None
        assert processes.send_signal(running.process, signal.SIGKILL)
        return running

    first = kill()  # if it has outlived `up` and its gateway, its socket is its own, and refuses connections
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                await statuses_of_new_connections(stack, 1)
                break
            await asyncio.sleep(0.05)
    await kept_sockets.until_kept(stack, "gateway", 1)
    gateway = stack.component("gateway")
    assert gateway is not None
    assert processes.send_signal(gateway, signal.SIGKILL)
    assert kill() != first
    assert await statuses_of_new_connections(stack, 20) == {200}


def after_reboot(record: Any, stranger: processes.ProcessIdentity) -> Any:
    """Return a process record as after a reboot: its pids belong to a foreign process."""
    match record:
        case {"pid": _, "start_time": start, **rest}:
            fields = {"pid": stranger.pid, "start_time": type(start)(stranger.start_time)}
        case {"recorder": _, "process": _, **rest}:
            identity = [stranger.pid, stranger.start_time]
            fields = {"recorder": identity, "process": identity}
        case _:
            raise AssertionError(record)
    return {**rest, **fields, "boot_id": "00000000-0000-0000-0000-000000000000"}


async def test_everything_restarts_after_a_reboot_and_no_foreign_process_is_adopted(
    stack: LiveStack, kube: Kube
) -> None:
    data = stack.data_dir
    replicas_before = await stack.replicas(kube, "digits")
    records = [
        *data.run.glob("*.json"),
        data.gateway / "envoy.json",
        *data.pods.glob("*/containers/*/*/started.json"),
    ]
    records = [path for path in records if path != data.ports]
    assert len(records) == len(["up", zygote.NAME, "envoy", *COMPONENTS, *replicas_before])
    pods = await stacks.pods(kube, "digits")
    envoy = processes.identity_of(json.loads((data.gateway / "envoy.json").read_text())["pid"])
    assert stack.up is not None
    stack.up.kill()
    stack.up.wait()
    for process in [
        *map(stack.component, COMPONENTS),
        envoy,
        *(p for pod in pods for p in stack.processes(pod)),
    ]:
        assert process is not None
        processes.send_signal(process, signal.SIGKILL)
    sleeper = await asyncio.create_subprocess_exec("/bin/sleep", "600")
    try:
        stranger = processes.identity_of(sleeper.pid)
        assert stranger is not None
        for path in records:
            path.write_text(json.dumps(after_reboot(json.loads(path.read_text()), stranger)))
        stack.start()
        async with await connect(data.kubeconfig, component="test") as client:
            for name in replicas_before:
                await until(
                    client,
                    kinds.POD,
                    name,
                    lambda pod: stacks.restarts(pod) == 1 and conditions.is_true(pod, "Ready"),
                )
            await until(client, kinds.INFERENCE, "digits", stacks.settled)
            async with stack.load("digits") as load:
                await load.more(50)
            replicas_after = await stack.replicas(client, "digits")
        assert sleeper.returncode is None
        assert processes.is_alive(stranger)
    finally:
        sleeper.kill()
        await sleeper.wait()
    assert load.failed == []
    assert replicas_after.keys() == replicas_before.keys()
    assert all(process.pid != stranger.pid for process, _ in replicas_after.values())
