"""Envoy with the activator and replicas: requests at zero wait, later ones go directly to a replica."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.router.plan.service import Cluster, Endpoint
from tests.rig.machine.addresses import own
from tests.rig.servers.activator import activator, until_waiting
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, gateway_rig, route

PORT = 8080
REPLICA, OTHER = own(63), own(64)
CLUSTER = Cluster("default/digits-a/8080", ())


async def ask(session: aiohttp.ClientSession, gateway: GatewayRig) -> tuple[int, str, Any]:
    async with session.post(f"{gateway.url}/default/digits/v2/x", data=b"body") as response:
        return (
            response.status,
            response.headers.get("x-slipway-arm", ""),
            await response.json(content_type=None),
        )


async def test_requests_at_zero_wait_for_their_arm_and_later_ones_bypass_the_activator(
    tmp_path: Path,
) -> None:
    digits = route("digits", [("a", 10_000)], on_demand="a")
    up = endpoint_slice("digits-a", [REPLICA])
    async with gateway_rig(tmp_path) as gateway, aiohttp.ClientSession() as session:
        async with activator(gateway, CLUSTER) as held_backend, backend(REPLICA, PORT, name="a"):
            await gateway.serve([digits], [])
            requests = [asyncio.create_task(ask(session, gateway)) for _ in range(20)]
            await until_waiting(held_backend, lambda: 20)
            held_backend.set_replicas([Endpoint(REPLICA, PORT)])
            responses = await asyncio.gather(*requests)
            assert {(status, arm, body["name"], body["path"]) for status, arm, body in responses} == {
                (200, "a", "a", "/v2/x")
            }
            await gateway.serve([digits], [up])
        async with backend(REPLICA, PORT, name="a"):
            assert (await ask(session, gateway))[0] == 200, "the activator has stopped"


async def test_arm_at_zero_gets_its_share_of_requests(tmp_path: Path) -> None:
    digits = route("digits", [("a", 5000), ("b", 5000)], on_demand="a")
    async with (
        gateway_rig(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        activator(gateway, CLUSTER) as held_backend,
        backend(OTHER, PORT, name="b"),
    ):
        await gateway.serve([digits], [endpoint_slice("digits-b", [OTHER])])
        requests = [asyncio.create_task(ask(session, gateway)) for _ in range(60)]
        await until_waiting(held_backend, lambda: 60 - sum(task.done() for task in requests))
        waiting = len(held_backend.queue)
        assert 10 < waiting < 50
        async with backend(REPLICA, PORT, name="a"):
            held_backend.set_replicas([Endpoint(REPLICA, PORT)])
            responses = await asyncio.gather(*requests)
    assert [status for status, _, _ in responses] == [200] * 60
    assert sum(arm == "a" for _, arm, _ in responses) == waiting


async def test_requests_refused_by_a_vanished_replica_wait_at_the_activator(
    tmp_path: Path,
) -> None:
    digits = route("digits", [("a", 10_000)], on_demand="a")
    async with (
        gateway_rig(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        activator(gateway, CLUSTER) as held_backend,
    ):
        await gateway.serve([digits], [endpoint_slice("digits-a", [OTHER])])
        requests = [asyncio.create_task(ask(session, gateway)) for _ in range(20)]
        await until_waiting(held_backend, lambda: 20)
        async with backend(REPLICA, PORT, name="a"):
            held_backend.set_replicas([Endpoint(REPLICA, PORT)])
            assert {status for status, _, _ in await asyncio.gather(*requests)} == {200}


async def test_ready_replica_gets_every_request(tmp_path: Path) -> None:
    digits = route("digits", [("a", 10_000)], on_demand="a")
    async with (
        gateway_rig(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        activator(gateway, CLUSTER) as held_backend,
        backend(REPLICA, PORT, name="a") as counts,
    ):
        await gateway.serve([digits], [endpoint_slice("digits-a", [REPLICA])])
        assert {(await ask(session, gateway))[0] for _ in range(50)} == {200}
        assert (counts["requests"], held_backend.last_request) == (50, 0.0)


async def test_no_request_fails_when_on_demand_is_switched_on_and_off(tmp_path: Path) -> None:
    up = [endpoint_slice("digits-a", [REPLICA])]
    statuses: list[int] = []
    async with gateway_rig(tmp_path) as gateway, aiohttp.ClientSession() as session, backend(REPLICA, PORT):

        async def send_requests() -> None:
            while True:
                statuses.append((await ask(session, gateway))[0])

        await gateway.serve([route("digits", [("a", 10_000)])], up)
        clients = [asyncio.create_task(send_requests()) for _ in range(3)]
        for generation in range(4):
            arms = "a" if generation % 2 == 0 else ""
            await gateway.serve([route("digits", [("a", 10_000)], on_demand=arms)], up)
            count_before = len(statuses)
            while len(statuses) < count_before + 10:
                await asyncio.sleep(0.005)
        for task in clients:
            task.cancel()
    assert set(statuses) == {200}


async def test_request_of_a_client_that_hangs_up_leaves_the_activator(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        activator(gateway, CLUSTER) as held_backend,
    ):
        await gateway.serve([route("digits", [("a", 10_000)], on_demand="a")], [])
        request = asyncio.create_task(ask(session, gateway))
        await until_waiting(held_backend, lambda: 1)
        request.cancel()
        await until_waiting(held_backend, lambda: 0)


@pytest.mark.parametrize("has_activator", [False, True], ids=["no-activator", "too-late"])
async def test_request_that_cannot_be_held_is_answered_503_as_json(
    tmp_path: Path, *, has_activator: bool
) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        aiohttp.ClientSession() as session,
        contextlib.AsyncExitStack() as stack,
    ):
        if has_activator:
            await stack.enter_async_context(activator(gateway, CLUSTER, deadline_seconds=0.05))
        await gateway.serve([route("digits", [("a", 10_000)], on_demand="a")], [])
        status, _, body = await ask(session, gateway)
        assert (status, body.get("reason")) == (503, "NoReplicaInTime" if has_activator else "ReplicaFailed")
        assert body["error"]
