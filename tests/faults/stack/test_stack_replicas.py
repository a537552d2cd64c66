"""SIGKILL and SIGSTOP of an arm's only replica under load: the other arm, or the restart, answers."""

import asyncio
import signal
import time

import aiohttp
import pytest

from serving.kube import Kube
from serving.resources import kinds
from serving.system import processes
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, LiveStack, until

pytestmark = pytest.mark.slow

TRY_SECONDS = 1.0
SLOWEST_SECONDS = 4.0
"""One try's timeout, and the other arm's answer on a loaded machine; without the timeout it is 13 s."""
REPLACED_SECONDS = 20.0
"""Until a hung replica is killed: 13 s on a machine without other work."""


@pytest.mark.parametrize("arm", ["stable", "canary"])
async def test_killed_only_replica_of_an_arm_fails_no_request(stack: LiveStack, kube: Kube, arm: str) -> None:
    before = await stack.replicas(kube, "digits")
    name, (main, restarts) = next(item for item in before.items() if arm in item[0])
    async with stack.load("digits", clients=8) as load:
        assert processes.send_signal(main, signal.SIGKILL)
        await load.more(200)
    assert load.failed == []
    await until(kube, kinds.POD, name, lambda pod: stacks.restarts(pod) > restarts)
    await until(kube, kinds.INFERENCE, "digits", stacks.settled)
    after = await stack.replicas(kube, "digits")
    assert after[name][0] != main


async def test_hung_only_replica_of_an_arm_costs_a_request_one_try(stack: LiveStack, kube: Kube) -> None:
    await kube.patch(
        kinds.INFERENCE,
        NAMESPACE,
        "digits",
        {"spec": {"routing": {"timeouts": {"perTry": f"{TRY_SECONDS:g}s"}}}},
    )
    await until(kube, kinds.INFERENCE, "digits", stacks.settled)
    before = await stack.replicas(kube, "digits")
    _, (main, _) = next(item for item in before.items() if "stable" in item[0])
    slowest, statuses = 0.0, set()
    begun = time.monotonic()
    async with aiohttp.ClientSession() as session:
        url = f"http://{stack.gateway}/{NAMESPACE}/digits/v2/models/digits"
        assert processes.send_signal(main, signal.SIGSTOP)
        while processes.is_alive(main):
            assert time.monotonic() - begun < REPLACED_SECONDS
            sent = time.monotonic()
            async with session.get(url) as response:
                statuses.add(response.status)
                await response.read()
            slowest = max(slowest, time.monotonic() - sent)
            await asyncio.sleep(0.02)
    assert statuses == {200}
    assert TRY_SECONDS <= slowest < SLOWEST_SECONDS
