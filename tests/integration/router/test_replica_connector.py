from dataclasses import replace
from pathlib import Path

import aiohttp
import grpc
import pytest
from aiohttp import web

from serving.router.activator.connector import host_of
from serving.router.activator.grpc_forwarding import _ReplicaChannels
from serving.router.activator.process import connections
from serving.router.plan.service import Endpoint
from serving.settings import Settings
from tests.rig.machine.addresses import own


async def serve(runner: web.ServerRunner, replica: Endpoint, folder: Path) -> None:
    await runner.setup()
    if replica.unix:
        await web.UnixSite(runner, folder / replica.socket).start()
    else:
        await web.TCPSite(runner, replica.address, replica.port).start()


@pytest.mark.parametrize(
    "replica",
    [Endpoint(own(41), 8080, unix=True), Endpoint(own(41), 8080), Endpoint("::1", 0)],
    ids=["socket", "ipv4", "ipv6"],
)
async def test_request_reaches_a_replica_by_its_socket_or_its_address(
    tmp_path: Path, replica: Endpoint
) -> None:

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text=f"{request.path} {request.headers['Host']}")

    runner = web.ServerRunner(web.Server(answer))
    await serve(runner, replica, tmp_path)
    if replica.port == 0:
        replica = replace(replica, port=runner.addresses[0][1])
    try:
        async with connections(Settings(), tmp_path) as session:
            url, headers = f"http://{host_of(replica)}/v2/x", {"Host": "of-the-client"}
            async with session.get(url, headers=headers) as response:
                assert await response.text() == "/v2/x of-the-client"
    finally:
        await runner.cleanup()


async def test_replica_without_its_socket_is_a_failed_connection(tmp_path: Path) -> None:
    replica = Endpoint("127.77.0.2", 8080, unix=True)
    async with connections(Settings(), tmp_path) as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://{host_of(replica)}/v2/x")


async def test_grpc_request_reaches_a_replica_with_an_ipv6_address(tmp_path: Path) -> None:
    server = grpc.aio.server()
    replica = Endpoint("::1", server.add_insecure_port("[::1]:0"))
    await server.start()
    try:
        async with _ReplicaChannels(tmp_path, tmp_path, 5.0).open(replica) as channel:
            assert channel.get_state() is grpc.ChannelConnectivity.READY
    finally:
        await server.stop(None)
