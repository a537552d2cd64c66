"""Controllers before an API server that answers a third of their requests with 409, 410, 429 or 500."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.controllers.run import run
from serving.data_dir import DataDir
from serving.kube import Kube
from serving.kube.connection.client import connect
from serving.objects import Object
from serving.resources import kinds
from serving.settings import DEFAULTS
from serving.system.readiness import Readiness
from tests.rig.control_plane.convergence import QUICK, running
from tests.rig.control_plane.faulty_api import FaultyApi, token_of
from tests.rig.servers.api_process import ApiProcess

SERVICES = 6
SECONDS = 60.0
CHILDREN = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiProcess]:
    process = ApiProcess(tmp_path / "api").start()
    yield process
    process.stop()


@pytest.fixture
async def kube(api: ApiProcess) -> AsyncIterator[Kube]:
    async with await connect(api.data_dir.kubeconfig, component="test") as client:
        yield client


async def test_each_object_is_made_once_when_the_api_refuses_a_third_of_the_requests(
    api: ApiProcess, kube: Kube, tmp_path: Path
) -> None:
    data = DataDir(tmp_path / "controllers")
    data.root.mkdir()
    settings = replace(DEFAULTS, controllers=replace(QUICK, leader_election=True))
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.bin").write_bytes(b"weights")
    async with FaultyApi(api.data_dir.kubeconfig, "127.0.0.1") as proxy:
        proxy.write_kubeconfig(data.kubeconfig, token_of(api.data_dir.kubeconfig))
        proxy.refused_share = 1 / 3
        async with running(run(data, settings, Readiness())) as (controllers,):
            await create(kube, kinds.MODEL_VERSION, "v1", {"modelName": "m", "source": {"path": str(model)}})
            for number in range(SERVICES):
                await create(kube, kinds.INFERENCE, f"s{number}", inference())
            async with asyncio.timeout(SECONDS):
                while await unfinished(kube):
                    assert not controllers.done()
                    await asyncio.sleep(0.2)
            for number in range(SERVICES):
                await kube.delete(kinds.INFERENCE, "default", f"s{number}")
            await kube.delete(kinds.MODEL, "default", "m")
            async with asyncio.timeout(SECONDS):
                while await remaining(kube):
                    await asyncio.sleep(0.2)
    assert set(proxy.refused) == {409, 410, 429, 500}


def inference() -> Object:
    container = {"name": "predictor", "image": "example.com/server", "ports": [{"containerPort": 8080}]}
    predictors = [
        {"name": arm, "modelVersion": "v1", "trafficWeight": 50, "template": {"containers": [container]}}
        for arm in ("a", "b")
    ]
    return {"framework": "custom", "predictors": predictors}


async def create(kube: Kube, kind: kinds.Kind, name: str, spec: Object) -> None:
    await kube.create(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def unfinished(kube: Kube) -> bool:
    """Whether an object is missing; no object may ever be one too many."""
    routes = [route["metadata"]["name"] for route in (await kube.list(kinds.ROUTE, "default")).items]
    counts = {kind.kind: len((await kube.list(kind, "default")).items) for kind in CHILDREN}
    assert max(counts.values()) <= 2 * SERVICES, counts
    assert len(routes) <= SERVICES, routes
    return min(counts.values()) < 2 * SERVICES or len(routes) < SERVICES


async def remaining(kube: Kube) -> list[str]:
    listed = [
        await kube.list(kind, "default")
        for kind in (kinds.INFERENCE, kinds.ROUTE, kinds.MODEL, kinds.MODEL_VERSION)
    ]
    return [item["metadata"]["name"] for each in listed for item in each.items]
