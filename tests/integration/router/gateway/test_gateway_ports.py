"""The gateway reaches replicas whose port is closed to connections without its mark."""

from pathlib import Path

import aiohttp
import grpc
import orjson
import pytest

from serving.data_dir import DataDir
from serving.resources import kinds
from serving.router import gateway as gateway_process
from serving.router.activator.connector import host_of
from serving.router.activator.process import connections
from serving.router.plan.service import Cluster, Endpoint, socket_name
from serving.settings import Settings
from tests.fakes.kube import FakeKube
from tests.programs import grpc_replica
from tests.rig.control_plane.convergence import until
from tests.rig.machine.addresses import own
from tests.rig.machine.gateway_ports import accepts, keep_for_gateway, needs_marks
from tests.rig.servers.activator import activator
from tests.rig.servers.gateway import (
    backend,
    endpoint_slice,
    gateway_rig,
    route,
    running_gateway,
    settings_for_test,
)

PORT = 8080
REPLICA, GRPC_REPLICA, ABSENT = own(90), own(91), own(92)
CLUSTER = Cluster("default/echo-a/8080", (), on_demand=True, h2c=True)

pytestmark = [pytest.mark.root, needs_marks]


async def test_envoy_reaches_the_replica_and_another_process_does_not(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as gateway, backend(REPLICA, PORT, name="a"):
        assert accepts(REPLICA, PORT)
        keep_for_gateway(REPLICA, PORT)
        assert not accepts(REPLICA, PORT)
        await gateway.serve([route("digits", [("a", 10_000)])], [endpoint_slice("digits-a", [REPLICA])])
        url = f"{gateway.url}/default/digits/v2/x"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert (response.status, orjson.loads(await response.read())["name"]) == (200, "a")


@pytest.mark.parametrize("is_of_up", [True, False])
async def test_gateway_of_an_up_marks_connections_and_one_apart_as_on_a_cluster_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_of_up: bool
) -> None:
    kube, settings, data_dir = FakeKube(), settings_for_test(), DataDir(tmp_path)
    if is_of_up:
        data_dir.configuration.write_text("{}")

    async def connect(_: Path, *, component: str) -> FakeKube:
        return kube

    monkeypatch.setattr(gateway_process, "connect_eventually", connect)
    try:
        async with running_gateway(data_dir, settings):
            await until(lambda: kube.find(kinds.LEASE))
    finally:
        await gateway_process.stop_everything(data_dir, settings)
    config = orjson.loads((data_dir.gateway / "bootstrap.json").read_bytes())
    assert ("cluster_manager" in config) == is_of_up


async def test_activator_reaches_the_replica_by_http(tmp_path: Path) -> None:
    async with backend(REPLICA, PORT, name="a"), connections(Settings(), tmp_path) as session:
        keep_for_gateway(REPLICA, PORT)
        assert not accepts(REPLICA, PORT)
        async with session.get(f"http://{host_of(Endpoint(REPLICA, PORT))}/v2/x") as response:
            assert orjson.loads(await response.read())["name"] == "a"


async def test_activator_reaches_the_replica_by_grpc(tmp_path: Path) -> None:
    server = await grpc_replica.serve(f"{GRPC_REPLICA}:{PORT}")
    keep_for_gateway(GRPC_REPLICA, PORT)
    assert not accepts(GRPC_REPLICA, PORT)
    options = [("grpc.default_authority", "echo.default.slipway.local")]
    messages = [b"first", b"x" * 3_000_000, b""]
    try:
        async with (
            gateway_rig(tmp_path) as gateway,
            activator(gateway, CLUSTER) as held_backend,
            grpc.aio.insecure_channel(gateway.url.removeprefix("http://"), options=options) as channel,
        ):
            await gateway.serve([route("echo", [("a", 10_000)], h2c="a", on_demand="a")], [])
            # The first replica refuses the connection, so the call goes to the other one.
            held_backend.set_replicas([Endpoint(ABSENT, PORT), Endpoint(GRPC_REPLICA, PORT)])
            for _ in range(4):
                call = channel.stream_stream("/tests.Echo/Echo")(iter(messages))
                assert [answer async for answer in call] == messages
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/tests.Echo/Fail")(b"")
            assert caught.value.details() == grpc_replica.REFUSED
            names = {path.name for path in gateway.data_dir.activator.iterdir()}
            assert names == {socket_name(CLUSTER.name)}, "no tunnel is left"
    finally:
        await server.stop(None)
