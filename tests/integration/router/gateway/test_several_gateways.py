"""Several gateways of one API: a revision gets traffic once every live one has reached it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from serving import clock
from serving.controllers.inference import InferenceController
from serving.data_dir import DataDir
from serving.kube import Kube, Watches, connect
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, Settings
from tests.fakes.surroundings import inference, predictor, ready_version
from tests.rig.control_plane.convergence import running, until
from tests.rig.machine.addresses import own
from tests.rig.servers.gateway import (
    backend,
    endpoint_slice,
    gateway_of_api,
    remove_lease,
    settings_for_test,
)

pytestmark = pytest.mark.timeout(60)
REPLICA = own(8)


@dataclass
class World:
    """An API with the Inference controller, and a node that reports every Deployment as ready."""

    kube: Kube
    namespace: str
    kubeconfig: Path
    root: Path

    async def ready(self) -> tuple[str, str]:
        """Return status and reason of the Inference's condition `Ready`."""
        stored = await self.kube.get(kinds.INFERENCE, self.namespace, "digits")
        condition = conditions.find((stored.get("status") or {}).get("conditions"), "Ready") or {}
        return condition.get("status", ""), condition.get("message", "")

    async def entries(self) -> dict[str, Object]:
        """Return the entries of the Route's status by gateway."""
        stored = await self.kube.get(kinds.ROUTE, self.namespace, "digits")
        return {entry["name"]: entry for entry in (stored.get("status") or {}).get("gateways") or []}

    @asynccontextmanager
    async def gateway(self, name: str, address: str = "") -> AsyncIterator[Settings]:
        """Run a gateway with an Envoy and a directory of its own."""
        configured = settings_for_test(name=name, address=address)
        async with gateway_of_api(self.kube, self.kubeconfig, self.root, configured):
            yield configured

    def lease(self, name: str) -> AbstractAsyncContextManager[None]:
        """Let a gateway count as alive, whether it runs or not."""
        return lease(self.kube, name)


@asynccontextmanager
async def lease(kube: Kube, name: str) -> AsyncIterator[None]:
    body = {
        "metadata": {"name": f"slipway-gateway-{name}", "namespace": "default"},
        "spec": {"renewTime": clock.rfc3339_micro(clock.now()), "leaseDurationSeconds": 600},
    }
    await kube.create(kinds.LEASE, body)
    try:
        yield
    finally:
        await remove_lease(kube, "default", name)


@pytest.fixture
async def world(api_server: DataDir, tmp_path: Path) -> AsyncIterator[World]:
    namespace = f"gateways-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await connect(api_server.kubeconfig, component="test"))
        client = await stack.enter_async_context(await connect(api_server.kubeconfig, component="inference"))
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        version = ready_version("v1", namespace=namespace)
        stored = await kube.create(kinds.MODEL_VERSION, version)
        await kube.apply_status(kinds.MODEL_VERSION, stored, version["status"])
        watches = Watches(client)
        controller = InferenceController(client, DEFAULTS.controllers, watches)
        await stack.enter_async_context(running(controller.run(), watches.run(), node(kube, namespace)))
        await stack.enter_async_context(backend(REPLICA, 8080))
        yield World(kube, namespace, api_server.kubeconfig, tmp_path)
        await kube.delete(kinds.INFERENCE, namespace, "digits")


async def node(kube: Kube, namespace: str) -> None:
    """Give every Deployment its ready replicas, which are one server."""
    while True:
        for deployment in (await kube.list(kinds.DEPLOYMENT, namespace)).items:
            count = deployment["spec"]["replicas"]
            if (deployment.get("status") or {}).get("readyReplicas") != count:
                item = endpoint_slice(deployment["metadata"]["name"], [REPLICA], namespace=namespace)
                del item["metadata"]["resourceVersion"]
                await kube.create(kinds.ENDPOINT_SLICE, item)
                status = {"replicas": count, "readyReplicas": count}
                await kube.apply_status(kinds.DEPLOYMENT, deployment, status)
        await asyncio.sleep(0.02)


async def eventually(world: World, status: str, text: str) -> None:
    """Wait for the status of `Ready`, and for words of its message."""
    while True:
        ready = await world.ready()
        if ready[0] == status and text in ready[1]:
            return
        await asyncio.sleep(0.02)


async def create(world: World) -> None:
    body = inference(predictor("stable", "v1"))
    body["metadata"]["namespace"] = world.namespace
    await world.kube.create(kinds.INFERENCE, body)


async def test_revision_waits_for_a_live_gateway_that_has_not_reached_it(world: World) -> None:
    async with world.lease("b"), world.gateway("a"):
        await create(world)
        await eventually(world, "False", "waits until the gateways have accepted its Route")
        assert (await world.entries())["a"]["probes"][0]["message"] == ""
        assert not (await world.kube.get(kinds.ROUTE, world.namespace, "digits"))["spec"]["segments"]
        async with world.gateway("b"):
            await eventually(world, "True", "")
            entries = await world.entries()
            assert sorted(entries) == ["a", "b"]
            assert {entry["weights"][0]["percent"] for entry in entries.values()} == {100}


async def test_revision_that_one_gateway_cannot_reach_gets_no_traffic_and_says_where(world: World) -> None:
    async with world.gateway("a"), world.gateway("b"):
        unreachable = DataDir(world.root / "b").probe_socket
        await until(unreachable.exists)
        unreachable.unlink()
        await create(world)
        await eventually(world, "False", "gateway b: ")
        assert not (await world.kube.get(kinds.ROUTE, world.namespace, "digits"))["spec"]["segments"]


async def test_url_is_the_address_of_the_settings(world: World) -> None:
    async with world.gateway("a", address="models.example.com") as settings:
        await create(world)
        await eventually(world, "True", "")
        stored = await world.kube.get(kinds.INFERENCE, world.namespace, "digits")
        assert stored["status"]["url"] == f"http://models.example.com/{world.namespace}/digits"
        url = f"http://127.0.0.1:{settings.gateway.port}/{world.namespace}/digits/v2"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
