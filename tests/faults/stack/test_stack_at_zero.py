"""Scaling to zero and back on the whole product: only requests held by a killed activator are lost."""

import asyncio
import json
import os
import signal
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import aiohttp
import pytest

from serving import clock
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.system import processes
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, LiveStack, is_at_zero, light, predictors, settled, until

pytestmark = pytest.mark.slow

NAME = "sleeper"
BURST = 200
"""Requests of a burst; benchmarks/burst_at_zero.py has 1,000."""
CYCLES = 3
"""Cycles of the repeated scaling, of three seconds each."""
TO_ZERO = {"idleSeconds": 1, "prewarm": False}
"""The bursts of earlier tests are no forecast of the next one: a replica that is ready holds no request."""
SCALE = {"autoScale": {"minReplicas": 0, "maxReplicas": 1, "behavior": {"scaleToZero": TO_ZERO}}}
ROW = {
    "inputs": [{"name": "input", "shape": [1, 64], "datatype": "FP64", "data": [1.0] * 64}],
    "outputs": [{"name": "predict"}],
}


class RequestResult(NamedTuple):
    """The result of one request; status 0 is a connection error."""

    status: int
    seconds: float
    text: str


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inference is at zero."""
    async with stacks.deployed(stack, NAME, arms("v-1"), framework="custom") as client:
        await until(client, kinds.INFERENCE, NAME, is_at_zero)
        yield client


def arms(version: str) -> list[Object]:
    return [{**arm, **SCALE} for arm in light(predictors(a=(version, 1)))]


async def ask(session: aiohttp.ClientSession, stack: LiveStack) -> RequestResult:
    began = clock.monotonic()
    url = f"http://{stack.gateway}/{NAMESPACE}/{NAME}/v2/models/{NAME}/infer"
    try:
        async with session.post(url, json=ROW) as response:
            return RequestResult(response.status, clock.monotonic() - began, await response.text())
    except aiohttp.ClientError as error:
        return RequestResult(0, clock.monotonic() - began, repr(error))


def clients() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
    )


def burst(session: aiohttp.ClientSession, stack: LiveStack, count: int) -> list[asyncio.Task[RequestResult]]:
    return [asyncio.create_task(ask(session, stack)) for _ in range(count)]


async def all_answered(requests: list[asyncio.Task[RequestResult]], label: str) -> None:
    results = await asyncio.gather(*requests)
    assert Counter(a.status for a in results) == {200: len(requests)}, [
        a for a in results if a.status != 200
    ][:3]
    milliseconds = sorted(1000 * a.seconds for a in results)
    p50, p99 = statistics.median(milliseconds), milliseconds[int(0.99 * (len(results) - 1))]
    print(f"{label}: {len(results)} answered, p50 {p50:.0f} ms, p99 {p99:.0f} ms")


async def until_no_pod(kube: Kube) -> None:
    """Wait until the last replica has ended: a stopped node would leave it in the endpoints."""
    async with asyncio.timeout(20):
        while (await kube.list(kinds.POD, NAMESPACE)).items:
            await asyncio.sleep(0.05)


async def version_before(kube: Kube) -> str:
    """Return the resourceVersion from which `until_held` watches."""
    return (await kube.list(kinds.AUTOSCALER, NAMESPACE)).resource_version


async def until_held(kube: Kube, since: str) -> None:
    """Wait until the activator has reported held requests after the resourceVersion `since`.

    A watch sees each report; reads now and then miss those of a short wake.
    """
    async with asyncio.timeout(60), aclosing(kube.watch(kinds.AUTOSCALER, NAMESPACE, since)) as changes:
        async for change in changes:
            if change.type == "BOOKMARK" or change.object["metadata"]["name"] != f"{NAME}-a":
                continue
            demand = (change.object.get("status") or {}).get("demand") or []
            if any(entry["inFlight"] for entry in demand if entry["reporter"].startswith("activator-")):
                return


def kill(stack: LiveStack, name: str) -> processes.ProcessIdentity:
    process = stack.component(name)
    assert process is not None
    assert processes.send_signal(process, signal.SIGKILL)
    return process


async def until_replaced(stack: LiveStack, name: str, old_process: processes.ProcessIdentity) -> None:
    deadline = clock.monotonic() + 20
    while stack.component(name) in (None, old_process):
        assert clock.monotonic() < deadline, f"{name} is not restarted"
        await asyncio.sleep(0.02)


async def test_burst_at_zero_is_fully_answered_and_the_wake_phases_are_reported(
    stack: LiveStack, kube: Kube
) -> None:
    async with clients() as session:
        await all_answered(burst(session, stack, BURST), "burst")

    def is_reported(obj: Object) -> bool:
        return any("lastWake" in entry for entry in (obj.get("status") or {}).get("demand") or [])

    scaler = await until(kube, kinds.AUTOSCALER, f"{NAME}-a", is_reported)
    (wake,) = [entry["lastWake"] for entry in scaler["status"]["demand"] if "lastWake" in entry]
    assert sum(p["milliseconds"] for p in wake["phases"]) == pytest.approx(wake["total"], rel=0.02)
    assert wake["pod"].startswith(f"{NAME}-a-")


@pytest.mark.parametrize("is_reported", [False, True], ids=["before-it-is-reported", "while-it-starts"])
async def test_burst_at_zero_is_answered_when_components_are_killed_during_the_wake(
    stack: LiveStack, kube: Kube, *, is_reported: bool
) -> None:
    names = ("api", "controllers", "node", "gateway")
    async with clients() as session:
        killed = [] if is_reported else [kill(stack, name) for name in names]
        before = await version_before(kube) if is_reported else ""
        requests = burst(session, stack, BURST)
        if is_reported:
            await until_held(kube, before)
            killed = [kill(stack, name) for name in names]
        await all_answered(requests, "components killed")
        for name, old_process in zip(names, killed, strict=True):
            await until_replaced(stack, name, old_process)


async def test_killed_activator_loses_only_the_requests_it_holds(stack: LiveStack, kube: Kube) -> None:
    node = stack.component("node")
    assert node is not None
    await until_no_pod(kube)
    os.kill(node.pid, signal.SIGSTOP)  # starts no replica meanwhile
    try:
        async with clients() as session:
            before = await version_before(kube)
            requests = burst(session, stack, 20)
            await until_held(kube, before)
            killed = kill(stack, "activator")
            assert {a.status for a in await asyncio.gather(*requests)} == {503}
            await until_replaced(stack, "activator", killed)
            deadline = clock.monotonic() + 20
            while (
                not any(stack.data_dir.activator.iterdir()) or (await ask_quickly(session, stack)) != "waits"
            ):
                assert clock.monotonic() < deadline
            later = burst(session, stack, 20)
            os.kill(node.pid, signal.SIGCONT)
            await all_answered(later, "after the activator was killed")
    finally:
        processes.send_signal(node, signal.SIGCONT)


async def ask_quickly(session: aiohttp.ClientSession, stack: LiveStack) -> str:
    try:
        result = await asyncio.wait_for(ask(session, stack), 0.3)
    except TimeoutError:
        return "waits"
    return str(result.status)


async def test_no_request_fails_when_scaling_to_zero_and_back_repeatedly(
    stack: LiveStack, kube: Kube
) -> None:
    """Clients pause for about the idle timeout, so that requests meet every phase of scaling to zero."""
    is_sending = True
    results: list[RequestResult] = []

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        while is_sending:
            results.append(await ask(session, stack))
            await asyncio.sleep(0.05 if len(results) % 7 else 0.2 + number / 10)

    starts: set[str] = set()
    async with clients() as session:
        for cycle in range(CYCLES):
            is_sending = True
            tasks = [asyncio.create_task(client(session, number)) for number in range(4)]
            await asyncio.sleep(0.5)
            is_sending = False
            await asyncio.gather(*tasks)
            # Every client has its response, so the Pod that sent it exists.
            starts |= {pod["metadata"]["uid"] for pod in await stacks.pods(kube, NAME)}
            await until(kube, kinds.DEPLOYMENT, await serving(kube), lambda o: o["spec"]["replicas"] == 0)
            if cycle % 2:
                continue  # the next cycle begins while the last replica drains
            await until(kube, kinds.INFERENCE, NAME, is_at_zero)
    assert Counter(a.status for a in results) == {200: len(results)}, [a for a in results if a.status != 200][
        :3
    ]
    assert len(starts) >= CYCLES


async def test_no_request_fails_when_the_gateway_is_killed_during_scale_to_zero(
    stack: LiveStack, kube: Kube
) -> None:
    """Envoy does not learn that the replica stops; requests to the stopped replica are held too."""
    name = await serving(kube)
    async with clients() as session:
        await all_answered(burst(session, stack, 1), "woken")
        replicas = [killed for killed, _ in (await stack.replicas(kube, NAME)).values()]
        assert replicas
        await until(kube, kinds.DEPLOYMENT, name, lambda o: o["spec"]["replicas"] == 0)
        killed = kill(stack, "gateway")
        requests: list[asyncio.Task[RequestResult]] = []
        deadline = clock.monotonic() + 20
        while stack.component("gateway") in (None, killed) or any(map(processes.is_alive, replicas)):
            assert clock.monotonic() < deadline
            requests += burst(session, stack, 1)
            await asyncio.sleep(0.05)
        requests += burst(session, stack, 5)
        await all_answered(requests, "the gateway was killed")


async def serving(kube: Kube) -> str:
    inference = await kube.get(kinds.INFERENCE, NAMESPACE, NAME)
    return str(inference["status"]["predictors"][0]["revision"])


async def test_new_revision_is_rolled_out_at_zero_without_a_lost_request(
    stack: LiveStack, kube: Kube
) -> None:
    old_revision = await serving(kube)
    async with clients() as session:
        await kube.patch(kinds.INFERENCE, NAMESPACE, NAME, {"spec": {"predictors": arms("v-2")}})
        while await serving(kube) == old_revision:
            await all_answered(burst(session, stack, 5), "rolling out")
        await until(kube, kinds.INFERENCE, NAME, settled)
        (result,) = await asyncio.gather(*burst(session, stack, 1))
        assert json.loads(result.text)["model_version"] == "v-2"
    await until(kube, kinds.INFERENCE, NAME, is_at_zero)


async def test_client_that_hangs_up_wakes_the_replica_and_leaves_no_demand(
    stack: LiveStack, kube: Kube
) -> None:
    async with clients() as session:
        before = await version_before(kube)
        leaving = burst(session, stack, 10)
        await until_held(kube, before)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
    await until(
        kube, kinds.AUTOSCALER, f"{NAME}-a", lambda o: all(d["inFlight"] == 0 for d in o["status"]["demand"])
    )
    await until(kube, kinds.INFERENCE, NAME, is_at_zero)
