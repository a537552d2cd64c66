"""Containers that speak HTTP/2 themselves: any gRPC service, through a real Envoy, also from zero."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from serving.router.plan.service import Candidate, Cluster, Endpoint
from serving.router.prober import Prober
from tests.programs import grpc_replica
from tests.rig.control_plane.convergence import until
from tests.rig.machine.addresses import own
from tests.rig.servers.activator import activator, until_waiting
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, gateway_rig, route

PORT = 8080
REPLICA, OTHER, ABSENT = own(75), own(76), own(77)
CLUSTER = Cluster("default/echo-a/8080", (), on_demand=True, h2c=True)
ECHO = route("echo", [("a", 10_000)], h2c="a")
ON_DEMAND = route("echo", [("a", 10_000)], h2c="a", on_demand="a")
UP = [endpoint_slice("echo-a", [REPLICA])]


@contextlib.asynccontextmanager
async def replica(address: str = REPLICA) -> AsyncIterator[None]:
    server = await grpc_replica.serve(f"{address}:{PORT}")
    try:
        yield
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def channel(gateway: GatewayRig) -> AsyncIterator[Any]:
    options = [
        ("grpc.default_authority", "echo.default.slipway.local"),
        ("grpc.max_receive_message_length", -1),
        *grpc_replica.LARGE_METADATA,
    ]
    async with grpc.aio.insecure_channel(gateway.url.removeprefix("http://"), options=options) as opened:
        yield opened


async def echo(opened: Any, messages: list[bytes], **options: Any) -> tuple[list[bytes], Any]:
    """Send the messages, each after the answer to the one before; return the answers and the call."""
    call = opened.stream_stream("/tests.Echo/Echo")(**options)
    answers = []
    for message in messages:
        await call.write(message)
        answers.append(await call.read())
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return answers, call


@pytest.mark.parametrize("is_held", [False, True], ids=["replica", "activator"])
async def test_streams_metadata_and_status_pass_unchanged(tmp_path: Path, *, is_held: bool) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        channel(gateway) as opened,
        contextlib.AsyncExitStack() as stack,
    ):
        await stack.enter_async_context(replica())
        if is_held:
            held_backend = await stack.enter_async_context(activator(gateway, CLUSTER))
            held_backend.set_replicas([Endpoint(REPLICA, PORT)])
            await gateway.serve([ON_DEMAND], [])
        else:
            await gateway.serve([ECHO], UP)
        messages = [b"first", b"", b"x" * 5_000_000]
        answers, call = await echo(opened, messages, metadata=(("x-a", "1"), ("x-a-bin", b"\xff")))
        assert answers == messages
        initial = list(await call.initial_metadata())
        assert {("x-a", "1"), ("x-a-bin", b"\xff"), ("x-slipway-arm", "a")} <= set(initial)
        assert set(await call.trailing_metadata()) >= {("x-count", "3"), ("x-raw-bin", b"\x00\xff")}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await opened.unary_unary("/tests.Echo/Fail")(b"")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == grpc_replica.REFUSED
        assert ("x-why", "weight") in list(caught.value.trailing_metadata())


async def test_metadata_of_a_held_call_may_be_as_large_as_envoy_takes(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        channel(gateway) as opened,
        activator(gateway, CLUSTER) as held_backend,
        replica(),
    ):
        held_backend.set_replicas([Endpoint(REPLICA, PORT)])
        await gateway.serve([ON_DEMAND], [])
        large = ("x-a", "y" * 50_000)
        answers, call = await echo(opened, [b"x"], metadata=(large,))
        assert answers == [b"x"]
        assert large in list(await call.initial_metadata())


async def test_calls_at_zero_wait_for_the_replica(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as gateway, channel(gateway) as opened:
        async with activator(gateway, CLUSTER) as held_backend, replica():
            await gateway.serve([ON_DEMAND], [])
            calls = [asyncio.create_task(echo(opened, [b"%d" % n])) for n in range(20)]
            await until_waiting(held_backend, lambda: 20)
            held_backend.set_replicas([Endpoint(REPLICA, PORT)])
            assert [answers for answers, _ in await asyncio.gather(*calls)] == [
                [b"%d" % n] for n in range(20)
            ]
            await gateway.serve([ON_DEMAND], UP)
        async with replica():
            assert (await echo(opened, [b"later"]))[0] == [b"later"], "the activator has stopped"


async def test_call_waits_for_a_replica_that_does_not_listen_yet(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        channel(gateway) as opened,
        activator(gateway, CLUSTER) as held_backend,
    ):
        await gateway.serve([ON_DEMAND], [])
        held_backend.set_replicas([Endpoint(REPLICA, PORT)])
        call = asyncio.create_task(echo(opened, [b"early"]))
        await until(lambda: held_backend.last_request > 0)
        async with replica():
            assert (await call)[0] == [b"early"]


async def test_call_that_is_cancelled_or_too_late_leaves_the_activator(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        channel(gateway) as opened,
        activator(gateway, CLUSTER) as held_backend,
    ):
        await gateway.serve([ON_DEMAND], [])
        call = opened.unary_unary("/tests.Echo/Echo")(b"")
        await until_waiting(held_backend, lambda: 1)
        call.cancel()
        await until_waiting(held_backend, lambda: 0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await opened.unary_unary("/tests.Echo/Echo")(b"", timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until_waiting(held_backend, lambda: 0)


async def test_refused_call_has_the_reason(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as gateway,
        channel(gateway) as opened,
        activator(gateway, CLUSTER, deadline_seconds=0.05),
    ):
        await gateway.serve([ON_DEMAND], [])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await opened.unary_unary("/tests.Echo/Echo")(b"")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "default/echo-a/8080: no replica was ready in time"


async def test_request_that_is_no_call_is_not_held(tmp_path: Path) -> None:
    headers = {"host": "echo.default.slipway.local"}
    async with (
        gateway_rig(tmp_path) as gateway,
        activator(gateway, CLUSTER),
        aiohttp.ClientSession() as session,
    ):
        await gateway.serve([ON_DEMAND], [])
        async with session.post(f"{gateway.url}/v2/x", json={}, headers=headers) as response:
            assert response.status == 503
            assert "error" in await response.json()


async def test_arms_of_both_protocols_share_one_service(tmp_path: Path) -> None:
    """A call to the arm of HTTP/1.1 is bridged: its replica answers with JSON, which the bridge reports."""
    mixed = route("echo", [("a", 5000), ("b", 5000)], h2c="a")
    outcomes: Counter[str] = Counter()
    async with gateway_rig(tmp_path) as gateway, channel(gateway) as opened, replica(), backend(OTHER, PORT):
        await gateway.serve([mixed], [*UP, endpoint_slice("echo-b", [OTHER])])
        for _ in range(40):
            call = opened.unary_unary("/tests.Echo/Echo")(b"x")
            code, details = await call.code(), await call.details()
            outcomes[f"{code.name} {details}"] += 1
    bridged = "UNKNOWN envoy reverse bridge: upstream responded with no content-type header, status code 200"
    assert set(outcomes) == {"OK ", bridged}


async def test_prober_proves_a_container_by_its_answer(tmp_path: Path) -> None:
    backends = [("ready", REPLICA), ("plain", OTHER), ("away", ABSENT)]
    routes = [route(name, [("a", 10_000)], h2c="a") for name, _ in backends]
    method = "/inference.GRPCInferenceService/ServerReady"
    async with gateway_rig(tmp_path) as gateway, replica(), contextlib.AsyncExitStack() as stack:
        plain = grpc.aio.server()
        plain.add_insecure_port(f"{OTHER}:{PORT}")
        await plain.start()
        stack.push_async_callback(plain.stop, None)
        await gateway.serve(routes, [endpoint_slice(f"{name}-a", [address]) for name, address in backends])
        prober = Prober(gateway.data_dir.probe_socket, 5.0)
        stack.push_async_callback(prober.close)

        async def verdict(name: str) -> str:
            candidate = Candidate(name, f"/default/{name}", (method,), h2c=True, has_replica=True)
            return await prober.first_failure(candidate)

        assert await verdict("ready-a") == ""
        assert await verdict("plain-a") == "", "UNIMPLEMENTED is an answer of the server"
        assert (await verdict("away-a")).startswith(f"gRPC {method}: UNAVAILABLE ")
        assert (await verdict("missing")).startswith(f"gRPC {method}: NOT_FOUND ")
