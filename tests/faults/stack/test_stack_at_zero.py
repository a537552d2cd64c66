"""To zero and back on the whole product: whatever is killed meanwhile, no request is lost but what the activator held."""

import asyncio
import json
import os
import signal
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest

from serving import clock
from serving.kube import Kube
from serving.objects import Object
from serving.resources import conditions, kinds
from serving.system import processes
from tests.rig import stack as stacks
from tests.rig.stack import NAMESPACE, Stack, light, predictors, settled, until

pytestmark = pytest.mark.slow

NAME = "sleeper"
BURST = 200
"""In benchmarks/burst_at_zero.py it is 1,000."""
CYCLES = 3
"""Each takes three seconds."""
SCALE = {"autoScale": {"minReplicas": 0, "maxReplicas": 1, "behavior": {"scaleToZero": {"idleSeconds": 1}}}}
ROW = {
    "inputs": [{"name": "input", "shape": [1, 64], "datatype": "FP64", "data": [1.0] * 64}],
    "outputs": [{"name": "predict"}],
}


class Answer(NamedTuple):
    """What came of one request; status 0 is an error of the connection."""

    status: int
    seconds: float
    text: str


@pytest.fixture
async def kube(stack: Stack) -> AsyncIterator[Kube]:
    """A client, once the Inference is at zero."""
    async with stacks.deployed(stack, NAME, arms("v-1"), framework="custom") as client:
        await until(client, kinds.INFERENCE, NAME, is_at_zero)
        yield client


def arms(version: str) -> list[Object]:
    return [{**arm, **SCALE} for arm in light(predictors(a=(version, 1)))]


def ready(obj: Object) -> Object:
    return dict(conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {})


def is_at_zero(obj: Object) -> bool:
    return settled(obj) and ready(obj)["reason"] == "ScaledToZero"


async def ask(session: aiohttp.ClientSession, stack: Stack) -> Answer:
    began = clock.monotonic()
    url = f"http://{stack.gateway}/{NAMESPACE}/{NAME}/v2/models/{NAME}/infer"
    try:
        async with session.post(url, json=ROW) as response:
            return Answer(response.status, clock.monotonic() - began, await response.text())
    except aiohttp.ClientError as error:
        return Answer(0, clock.monotonic() - began, repr(error))


def clients() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
    )


def burst(session: aiohttp.ClientSession, stack: Stack, count: int) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(ask(session, stack)) for _ in range(count)]


async def all_answered(asked: list[asyncio.Task[Answer]], what: str) -> None:
    answers = await asyncio.gather(*asked)
    assert Counter(a.status for a in answers) == {200: len(asked)}, [a for a in answers if a.status != 200][
        :3
    ]
    milliseconds = sorted(1000 * a.seconds for a in answers)
    p50, p99 = statistics.median(milliseconds), milliseconds[int(0.99 * (len(answers) - 1))]
    print(f"{what}: {len(answers)} answered, p50 {p50:.0f} ms, p99 {p99:.0f} ms")


async def until_held(kube: Kube) -> None:
    """Wait until the activator says that it holds requests."""

    def is_told(obj: Object) -> bool:
        demand = (obj.get("status") or {}).get("demand") or []
        return any(said["inFlight"] for said in demand if said["reporter"].startswith("activator-"))

    await until(kube, kinds.AUTOSCALER, f"{NAME}-a", is_told)


def kill(stack: Stack, name: str) -> processes.ProcessIdentity:
    who = stack.component(name)
    assert who is not None
    assert processes.send_signal(who, signal.SIGKILL)
    return who


async def back(stack: Stack, name: str, before: processes.ProcessIdentity) -> None:
    deadline = clock.monotonic() + 20
    while stack.component(name) in (None, before):
        assert clock.monotonic() < deadline, f"{name} is not started again"
        await asyncio.sleep(0.02)


async def test_a_burst_at_zero_is_answered_whole_and_the_wake_is_accounted_for(
    stack: Stack, kube: Kube
) -> None:
    async with clients() as session:
        await all_answered(burst(session, stack, BURST), "burst")

    def is_told(obj: Object) -> bool:
        return any("lastWake" in said for said in (obj.get("status") or {}).get("demand") or [])

    found = await until(kube, kinds.AUTOSCALER, f"{NAME}-a", is_told)
    (wake,) = [said["lastWake"] for said in found["status"]["demand"] if "lastWake" in said]
    assert sum(p["milliseconds"] for p in wake["phases"]) == pytest.approx(wake["total"], rel=0.02)
    assert wake["pod"].startswith(f"{NAME}-a-")


@pytest.mark.parametrize("is_reported", [False, True], ids=["before-it-is-reported", "while-it-starts"])
async def test_a_burst_at_zero_loses_nothing_when_everything_is_killed_during_the_wake(
    stack: Stack, kube: Kube, *, is_reported: bool
) -> None:
    names = ("api", "controllers", "node", "gateway")
    async with clients() as session:
        before = [] if is_reported else [kill(stack, name) for name in names]
        asked = burst(session, stack, BURST)
        if is_reported:
            await until_held(kube)
            before = [kill(stack, name) for name in names]
        await all_answered(asked, "everything killed")
        for name, who in zip(names, before, strict=True):
            await back(stack, name, who)


async def test_a_killed_activator_loses_what_it_holds_and_the_next_requests_are_served(
    stack: Stack, kube: Kube
) -> None:
    node = stack.component("node")
    assert node is not None
    os.kill(node.pid, signal.SIGSTOP)  # nothing is started meanwhile
    try:
        async with clients() as session:
            asked = burst(session, stack, 20)
            await until_held(kube)
            who = kill(stack, "activator")
            assert {a.status for a in await asyncio.gather(*asked)} == {503}
            await back(stack, "activator", who)
            deadline = clock.monotonic() + 20
            while (
                not any(stack.data_dir.activator.iterdir()) or (await ask_quickly(session, stack)) != "waits"
            ):
                assert clock.monotonic() < deadline
            later = burst(session, stack, 20)
            os.kill(node.pid, signal.SIGCONT)
            await all_answered(later, "after the activator was killed")
    finally:
        os.kill(node.pid, signal.SIGCONT)


async def ask_quickly(session: aiohttp.ClientSession, stack: Stack) -> str:
    try:
        answer = await asyncio.wait_for(ask(session, stack), 0.3)
    except TimeoutError:
        return "waits"
    return str(answer.status)


async def test_again_and_again_to_zero_and_back_under_load_fails_no_request(stack: Stack, kube: Kube) -> None:
    """Clients that ask now and then, with pauses just about the idle timeout, meet every moment of it."""
    going = True
    answers: list[Answer] = []

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        while going:
            answers.append(await ask(session, stack))
            await asyncio.sleep(0.05 if len(answers) % 7 else 0.2 + number / 10)

    starts: set[str] = set()
    async with clients() as session:
        for cycle in range(CYCLES):
            going = True
            asking = [asyncio.create_task(client(session, number)) for number in range(4)]
            await asyncio.sleep(0.5)
            going = False
            await asyncio.gather(*asking)
            # Every client has its answer, so the Pod that gave it exists, however long its start took.
            starts |= {pod["metadata"]["uid"] for pod in await stacks.pods(kube, NAME)}
            await until(kube, kinds.DEPLOYMENT, await serving(kube), lambda o: o["spec"]["replicas"] == 0)
            if cycle % 2:
                continue  # begin again while the last replica is still being drained
            await until(kube, kinds.INFERENCE, NAME, is_at_zero)
    assert Counter(a.status for a in answers) == {200: len(answers)}, [a for a in answers if a.status != 200][
        :3
    ]
    assert len(starts) >= CYCLES


async def test_a_gateway_that_is_killed_as_it_goes_to_zero_costs_no_request(stack: Stack, kube: Kube) -> None:
    """Envoy is not told that the replica goes; what finds it gone waits all the same."""
    name = await serving(kube)
    async with clients() as session:
        await all_answered(burst(session, stack, 1), "woken")
        replicas = [who for who, _ in (await stack.replicas(kube, NAME)).values()]
        assert replicas
        await until(kube, kinds.DEPLOYMENT, name, lambda o: o["spec"]["replicas"] == 0)
        who = kill(stack, "gateway")
        asked: list[asyncio.Task[Answer]] = []
        deadline = clock.monotonic() + 20
        while stack.component("gateway") in (None, who) or any(map(processes.is_alive, replicas)):
            assert clock.monotonic() < deadline
            asked += burst(session, stack, 1)
            await asyncio.sleep(0.05)
        asked += burst(session, stack, 5)
        await all_answered(asked, "the gateway was killed")


async def serving(kube: Kube) -> str:
    found = await kube.get(kinds.INFERENCE, NAMESPACE, NAME)
    return str(found["status"]["predictors"][0]["revision"])


async def test_a_new_revision_is_rolled_out_at_zero_without_a_request_lost(stack: Stack, kube: Kube) -> None:
    before = await serving(kube)
    async with clients() as session:
        await kube.patch(kinds.INFERENCE, NAMESPACE, NAME, {"spec": {"predictors": arms("v-2")}})
        while await serving(kube) == before:
            await all_answered(burst(session, stack, 5), "rolling out")
        await until(kube, kinds.INFERENCE, NAME, settled)
        (answer,) = await asyncio.gather(*burst(session, stack, 1))
        assert json.loads(answer.text)["model_version"] == "v-2"
    await until(kube, kinds.INFERENCE, NAME, is_at_zero)


async def test_a_client_that_hangs_up_wakes_it_all_the_same_and_leaves_nothing_behind(
    stack: Stack, kube: Kube
) -> None:
    async with clients() as session:
        leaving = burst(session, stack, 10)
        await until_held(kube)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
    await until(
        kube, kinds.AUTOSCALER, f"{NAME}-a", lambda o: all(d["inFlight"] == 0 for d in o["status"]["demand"])
    )
    await until(kube, kinds.INFERENCE, NAME, is_at_zero)
