"""The gateway reaches replicas whose port is closed to connections without its mark."""

from pathlib import Path

import aiohttp
import orjson
import pytest

from serving.data_dir import DataDir
from serving.resources import kinds
from serving.router import gateway as gateway_process
from tests.fakes.kube import FakeKube
from tests.rig.addresses import own
from tests.rig.convergence import until
from tests.rig.gateway_ports import is_open_to_all, keep_for_gateway, needs_marks
from tests.rig.servers.gateway import (
    backend,
    endpoint_slice,
    gateway_rig,
    in_background,
    route,
    settings_for_test,
)

PORT = 8080
REPLICA = own(90)

pytestmark = [pytest.mark.root, needs_marks]


async def test_envoy_reaches_the_replica_and_another_process_does_not(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as gateway, backend(REPLICA, PORT, name="a"):
        assert is_open_to_all(REPLICA, PORT)
        keep_for_gateway(REPLICA, PORT)
        assert not is_open_to_all(REPLICA, PORT)
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
        async with in_background(gateway_process.run(data_dir, settings)):
            await until(lambda: kube.find(kinds.LEASE))
    finally:
        await gateway_process.stop_everything(data_dir, settings)
    config = orjson.loads((data_dir.gateway / "bootstrap.json").read_bytes())
    assert ("cluster_manager" in config) == is_of_up
