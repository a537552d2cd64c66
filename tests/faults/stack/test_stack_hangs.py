"""After SIGSTOP each component, Envoy and a replica are replaced, and the status of the Inference is true."""

import asyncio
import json
import signal
import time

import pytest

from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.system import processes
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import LiveStack, until

pytestmark = pytest.mark.slow
HUNG_SECONDS = 15.0
"""Until a hung component is replaced: it is noticed after 6 s, and this machine may be loaded."""

ENVOY_HUNG_SECONDS = 8.0
"""Until traffic flows again: 3.5 s on a machine without other work."""


def routes_ready(inference: Object) -> Object:
    condition = conditions.find((inference.get("status") or {}).get("conditions"), "RoutesReady")
    assert condition is not None
    return condition


REPLICA_HUNG_SECONDS = 20.0
"""Until a hung replica is killed: 13 s on a machine without other work."""


@pytest.mark.parametrize("name", COMPONENTS)
async def test_hung_component_is_replaced_without_a_failed_request(
    stack: LiveStack, kube: Kube, name: str
) -> None:
    replicas = await stack.replicas(kube, "digits")
    hung = stack.component(name)
    assert hung is not None
    async with stack.load("digits") as load:
        assert processes.send_signal(hung, signal.SIGSTOP)
        begun = time.monotonic()
        while stack.component(name) in (None, hung):
            assert time.monotonic() - begun < HUNG_SECONDS
            await load.more(5)
        assert not processes.is_alive(hung)
        await load.more(50)
    assert load.failed == []
    inference = await until(kube, kinds.INFERENCE, "digits", stacks.settled)
    assert routes_ready(inference)["reason"] == "Accepted"
    assert await stack.replicas(kube, "digits") == replicas


async def test_hung_envoy_is_replaced_within_seconds_and_reported(stack: LiveStack, kube: Kube) -> None:
    record = processes.read_identity(stack.data_dir.gateway / "envoy.json")
    assert record is not None
    assert processes.send_signal(record[0], signal.SIGSTOP)
    begun = time.monotonic()
    not_serving = await until(
        kube, kinds.INFERENCE, "digits", lambda i: routes_ready(i)["reason"] == "GatewayNotServing"
    )
    assert "Envoy does not answer" in routes_ready(not_serving)["message"]
    assert conditions.is_true(not_serving, "Ready") is False
    async with stack.load("digits") as load:
        while not any(answer.status == 200 for answer in load.answers):
            assert time.monotonic() - begun < ENVOY_HUNG_SECONDS
            await load.more(1)
    await until(kube, kinds.INFERENCE, "digits", stacks.settled)
    replaced = json.loads((stack.data_dir.gateway / "envoy.json").read_text())
    assert replaced["pid"] != record[0].pid


async def test_hung_replica_is_replaced_within_seconds(stack: LiveStack, kube: Kube) -> None:
    before = await stack.replicas(kube, "digits")
    name, (main, _) = next(iter(before.items()))
    assert processes.send_signal(main, signal.SIGSTOP)
    begun = time.monotonic()
    while processes.is_alive(main):
        assert time.monotonic() - begun < REPLICA_HUNG_SECONDS
        await asyncio.sleep(0.1)
    await until(kube, kinds.INFERENCE, "digits", stacks.settled)
    after = await stack.replicas(kube, "digits")
    assert after[name][0] != main
    assert {key: value for key, value in after.items() if key != name} == {
        key: value for key, value in before.items() if key != name
    }
