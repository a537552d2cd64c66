"""Envoy, the activator's sockets and replicas together: requests at zero wait, and go straight to a replica once it is there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving import clock
from serving.router.activator.forwarding import Backend, Listener, RequestObserver
from serving.router.activator.request_queue import Budget
from serving.router.plan.service import Cluster, Endpoint
from serving.settings import ActivatorSettings
from tests.rig.addresses import own
from tests.rig.gateway import World, backend, endpoint_slice, route, world

PORT = 8080
REPLICA, OTHER = own(63), own(64)
CLUSTER = Cluster("default/digits-a/8080", ())


def nothing(*_: Any) -> None:
    """Hear, and do nothing."""


@contextlib.asynccontextmanager
async def activator(gateway: World, **settings: Any) -> AsyncIterator[Backend]:
    """Give what holds the requests of the arm `a` of `digits`."""
    chosen = replace(ActivatorSettings(), **settings)
    folder = gateway.data_dir.activator
    folder.mkdir(parents=True, exist_ok=True)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        found = Backend(CLUSTER.name, chosen, Budget(), session, RequestObserver(*[nothing] * 6))
        listener = Listener(found, folder / CLUSTER.socket, chosen)
        await listener.open()
        try:
            yield found
        finally:
            await listener.close()


async def until_waiting(found: Backend, count: Callable[[], int]) -> None:
    deadline = clock.monotonic() + 10
    while len(found.queue) != count():
        assert clock.monotonic() < deadline, f"{len(found.queue)} wait, not {count()}"
        await asyncio.sleep(0.005)


async def ask(session: aiohttp.ClientSession, gateway: World) -> tuple[int, str, Any]:
    async with session.post(f"{gateway.url}/default/digits/v2/x", data=b"body") as answer:
        return answer.status, answer.headers.get("x-slipway-arm", ""), await answer.json(content_type=None)


async def test_requests_at_zero_wait_keep_their_arm_and_later_ones_need_no_activator(tmp_path: Path) -> None:
    one = route("digits", [("a", 10_000)], on_demand="a")
    up = endpoint_slice("digits-a", [REPLICA])
    async with world(tmp_path) as gateway, aiohttp.ClientSession() as session:
        async with activator(gateway) as held, backend(REPLICA, PORT, name="a"):
            await gateway.serve([one], [])
            asked = [asyncio.create_task(ask(session, gateway)) for _ in range(20)]
            await until_waiting(held, lambda: 20)
            held.set_replicas([Endpoint(REPLICA, PORT)])
            answers = await asyncio.gather(*asked)
            assert {(status, arm, said["name"], said["path"]) for status, arm, said in answers} == {
                (200, "a", "a", "/v2/x")
            }
            await gateway.serve([one], [up])
        async with backend(REPLICA, PORT, name="a"):
            assert (await ask(session, gateway))[0] == 200, "the activator is not there any more"


async def test_an_arm_at_zero_gets_its_share_beside_one_that_is_up(tmp_path: Path) -> None:
    two = route("digits", [("a", 5000), ("b", 5000)], on_demand="a")
    async with (
        world(tmp_path) as gateway, aiohttp.ClientSession() as session, activator(gateway) as held,
        backend(OTHER, PORT, name="b"),
    ):  # fmt: skip
        await gateway.serve([two], [endpoint_slice("digits-b", [OTHER])])
        asked = [asyncio.create_task(ask(session, gateway)) for _ in range(60)]
        await until_waiting(held, lambda: 60 - sum(task.done() for task in asked))
        waiting = len(held.queue)
        assert 10 < waiting < 50
        async with backend(REPLICA, PORT, name="a"):
            held.set_replicas([Endpoint(REPLICA, PORT)])
            answers = await asyncio.gather(*asked)
    assert [status for status, _, _ in answers] == [200] * 60
    assert sum(arm == "a" for _, arm, _ in answers) == waiting


async def test_what_a_replica_that_is_gone_did_not_take_waits_though_envoy_was_told_nothing(
    tmp_path: Path,
) -> None:
    one = route("digits", [("a", 10_000)], on_demand="a")
    async with world(tmp_path) as gateway, aiohttp.ClientSession() as session, activator(gateway) as held:
        await gateway.serve([one], [endpoint_slice("digits-a", [OTHER])])
        asked = [asyncio.create_task(ask(session, gateway)) for _ in range(20)]
        await until_waiting(held, lambda: 20)
        async with backend(REPLICA, PORT, name="a"):
            held.set_replicas([Endpoint(REPLICA, PORT)])
            assert {status for status, _, _ in await asyncio.gather(*asked)} == {200}


async def test_a_replica_that_is_there_has_every_request(tmp_path: Path) -> None:
    one = route("digits", [("a", 10_000)], on_demand="a")
    async with (
        world(tmp_path) as gateway, aiohttp.ClientSession() as session, activator(gateway) as held,
        backend(REPLICA, PORT, name="a") as seen,
    ):  # fmt: skip
        await gateway.serve([one], [endpoint_slice("digits-a", [REPLICA])])
        assert {(await ask(session, gateway))[0] for _ in range(50)} == {200}
        assert (seen["requests"], held.last_request) == (50, 0.0)


async def test_no_request_fails_when_it_may_be_at_zero_and_may_not_again(tmp_path: Path) -> None:
    up = [endpoint_slice("digits-a", [REPLICA])]
    answers: list[int] = []
    async with world(tmp_path) as gateway, aiohttp.ClientSession() as session, backend(REPLICA, PORT):

        async def go_on_asking() -> None:
            while True:
                answers.append((await ask(session, gateway))[0])

        await gateway.serve([route("digits", [("a", 10_000)])], up)
        asking = [asyncio.create_task(go_on_asking()) for _ in range(3)]
        for generation in range(4):
            arms = "a" if generation % 2 == 0 else ""
            await gateway.serve([route("digits", [("a", 10_000)], on_demand=arms)], up)
            before = len(answers)
            while len(answers) < before + 10:
                await asyncio.sleep(0.005)
        for task in asking:
            task.cancel()
    assert set(answers) == {200}


async def test_a_client_that_hangs_up_at_the_gateway_is_forgotten_behind_it(tmp_path: Path) -> None:
    async with world(tmp_path) as gateway, aiohttp.ClientSession() as session, activator(gateway) as held:
        await gateway.serve([route("digits", [("a", 10_000)], on_demand="a")], [])
        asked = asyncio.create_task(ask(session, gateway))
        await until_waiting(held, lambda: 1)
        asked.cancel()
        await until_waiting(held, lambda: 0)


@pytest.mark.parametrize("is_there", [False, True], ids=["no-activator", "too-late"])
async def test_a_request_that_nobody_can_hold_or_answer_is_told_so_as_json(
    tmp_path: Path, *, is_there: bool
) -> None:
    async with (
        world(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        contextlib.AsyncExitStack() as stack,
    ):
        if is_there:
            await stack.enter_async_context(activator(gateway, deadline_seconds=0.05))
        await gateway.serve([route("digits", [("a", 10_000)], on_demand="a")], [])
        status, _, said = await ask(session, gateway)
        assert (status, said.get("reason")) == (503, "NoReplicaInTime" if is_there else None)
        assert said["error"]
