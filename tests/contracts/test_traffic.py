"""Roll-out and several gateways on an API: all controllers, and gateways with real Envoys, in this process.

Pods run in the API alone, on the played machine of the suite.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from serving.kube import Kube
from serving.objects import Object
from serving.resources import conditions, kinds, names
from serving.settings import DEFAULTS, GatewaySettings, Settings
from tests.contracts.conftest import Machine
from tests.objects import rights_stories as stories
from tests.objects.contract_objects import eventually
from tests.rig.control_plane.convergence import running
from tests.rig.machine.ports import free_port
from tests.rig.servers.gateway import envoys_have_ended, gateway_of_api

pytestmark = [
    pytest.mark.server_only("the processes of controllers and gateways connect by a kubeconfig"),
    pytest.mark.timeout(180),
]

REFUSAL = "the model is being loaded"
"""Answer of a revision that is not ready; Envoy's own 503, without an endpoint yet, has another text."""
STORY_SECONDS = 60.0
"""Longest wait for one step, which takes some seconds on a machine with other work."""


@pytest.fixture
def controller_settings(namespace: str) -> Settings:
    """Return settings with the Leases in the test's namespace; the played node names no container runtime."""
    return dataclasses.replace(
        DEFAULTS,
        controllers=dataclasses.replace(DEFAULTS.controllers, lease_namespace=namespace),
        models=dataclasses.replace(DEFAULTS.models, volume="image"),
    )


class Replicas:
    """All replicas, at one address: the readiness path of each revision answers once it is in `ready`."""

    def __init__(self) -> None:
        self.ready = {"/first"}

    async def answer(self, request: web.Request) -> web.Response:
        if request.path in ("/first", "/second") and request.path not in self.ready:
            return web.Response(status=503, text=REFUSAL)
        return web.Response()

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[None]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, names.RUNTIME_PORT).start()
            yield
        finally:
            await runner.cleanup()


@dataclasses.dataclass(frozen=True)
class World:
    """A namespace with the Inference `digits`, as its user sees it."""

    kube: Kube
    namespace: str
    kubeconfig: Path
    root: Path
    settings: Settings
    scheduler: str
    replicas: Replicas

    def predictor(self, name: str, version: str, readiness: str, weight: int) -> Object:
        """Return a predictor whose revisions have a readiness path, by which gateways prove them."""
        predictor = stories.predictor(self.scheduler, name=name, modelVersion=version, trafficWeight=weight)
        probe = {"httpGet": {"path": readiness, "port": names.RUNTIME_PORT}}
        predictor["template"]["containers"][0]["readinessProbe"] = probe
        return predictor

    async def create(self, *predictors: Object) -> None:
        await self.kube.create(kinds.INFERENCE, stories.inference(self.namespace, "digits", *predictors))

    async def change(self, *predictors: Object) -> None:
        """Replace all predictors, as `kubectl edit` does."""
        patch = {"spec": {"predictors": list(predictors)}}
        await self.kube.patch(kinds.INFERENCE, self.namespace, "digits", patch)

    async def until(self, kind: kinds.Kind, holds: Callable[[Object], bool]) -> Object:
        """Wait until the object `digits` of a kind is as it should be; return it."""
        stored: Object = {}

        async def read() -> bool:
            nonlocal stored
            stored = await self.kube.get(kind, self.namespace, "digits")
            return holds(stored)

        try:
            await eventually(read, STORY_SECONDS)
        except TimeoutError:
            raise AssertionError(stored.get("spec"), stored.get("status")) from None
        return stored

    async def ready(self) -> Object:
        """Wait for `Ready` of the newest generation; return the Inference."""

        def holds(inference: Object) -> bool:
            condition = conditions.find((inference.get("status") or {}).get("conditions"), "Ready") or {}
            is_current = condition.get("observedGeneration") == inference["metadata"]["generation"]
            return is_current and condition["status"] == "True"

        return await self.until(kinds.INFERENCE, holds)

    async def deployments(self) -> set[str]:
        labels = f"{names.INFERENCE_LABEL}=digits"
        listed = (await self.kube.list(kinds.DEPLOYMENT, self.namespace, labels=labels)).items
        return {deployment["metadata"]["name"] for deployment in listed}

    @asynccontextmanager
    async def gateway(self, name: str) -> AsyncIterator[str]:
        """Run a gateway; yield the URL of the Inference there."""
        of_gateway = GatewaySettings(name=name, port=free_port(), drain_seconds=2.0)
        settings = dataclasses.replace(self.settings, gateway=of_gateway)
        async with gateway_of_api(self.kube, self.kubeconfig, self.root, settings):
            yield f"http://127.0.0.1:{of_gateway.port}/{self.namespace}/digits/v2"


@pytest.fixture
async def world(
    kube: Kube,
    namespace: str,
    controllers: None,
    machine: Machine,
    controller_settings: Settings,
    contract_kubeconfig: Path,
    tmp_path: Path,
) -> AsyncIterator[World]:
    replicas = Replicas()
    with envoys_have_ended():
        async with replicas.at(machine.address):
            for version in ("v1", "v2"):
                await kube.create(kinds.MODEL_VERSION, stories.version(namespace, version, "m", tmp_path))
            yield World(
                kube,
                namespace,
                contract_kubeconfig,
                tmp_path,
                controller_settings,
                machine.scheduler,
                replicas,
            )
            await kube.delete(kinds.INFERENCE, namespace, "digits")


def served(inference: Object) -> tuple[str, str]:
    """Return the revision of the first predictor that serves, and the one that is being proven."""
    (predictor, *_) = inference["status"]["predictors"]
    return predictor.get("revision", ""), predictor.get("candidateRevision", "")


def names_the_refusal(inference: Object) -> bool:
    """Whether `Ready` is False with the answer that a gateway's probe got from a replica."""
    condition = conditions.find((inference.get("status") or {}).get("conditions"), "Ready") or {}
    return condition.get("status") == "False" and REFUSAL in condition["message"]


def entries(route: Object) -> dict[str, Object]:
    """Return the entries of a Route's status by gateway."""
    return {entry["name"]: entry for entry in (route.get("status") or {}).get("gateways") or []}


async def answered_by(url: str) -> str:
    """Send a request; return the model version that served it."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers[names.SERVED_VERSION_HEADER]


async def keep_asking(url: str, answers: list[int]) -> None:
    """Send one request after another, and keep the status of each; 0 for one without an answer."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as answer:
                    answers.append(answer.status)
            except aiohttp.ClientError:
                answers.append(0)
            await asyncio.sleep(0.01)


async def test_new_revision_gets_the_traffic_once_a_gateway_has_proven_it(world: World) -> None:
    async with world.gateway("a") as url:
        await world.create(world.predictor("stable", "v1", "/first", 100))
        first, _ = served(await world.ready())
        assert await answered_by(url) == "v1"
        answers: list[int] = []
        async with running(keep_asking(url, answers)):
            await world.change(world.predictor("stable", "v2", "/second", 100))
            inference = await world.until(kinds.INFERENCE, names_the_refusal)
            revision, candidate = served(inference)
            assert revision == first
            assert await answered_by(url) == "v1"
            world.replicas.ready.add("/second")
            assert served(await world.ready()) == (candidate, "")
            assert await answered_by(url) == "v2"

            async def is_alone() -> bool:
                return await world.deployments() == {candidate}

            await eventually(is_alone, STORY_SECONDS)
        assert set(answers) == {200}


async def test_two_gateways_acknowledge_a_change_of_weights(world: World) -> None:
    async with world.gateway("a") as first, world.gateway("b") as second:

        def split(stable: int, canary: int) -> list[Object]:
            return [
                world.predictor("stable", "v1", "/first", stable),
                world.predictor("canary", "v2", "/first", canary),
            ]

        def weights(route: Object) -> dict[str, dict[str, float]]:
            """Return the weights by gateway, of those that have accepted the newest generation."""
            return {
                name: {weight["arm"]: weight["percent"] for weight in entry["weights"]}
                for name, entry in entries(route).items()
                if entry["acceptedGeneration"] == route["metadata"]["generation"]
            }

        await world.create(*split(90, 10))
        await world.ready()
        both = {"stable": 90, "canary": 10}
        before = await world.until(kinds.ROUTE, lambda route: weights(route) == {"a": both, "b": both})
        await world.change(*split(25, 75))
        both = {"stable": 25, "canary": 75}
        after = await world.until(kinds.ROUTE, lambda route: weights(route) == {"a": both, "b": both})
        assert after["metadata"]["generation"] > before["metadata"]["generation"]
        predictors = (await world.ready())["status"]["predictors"]
        assert {predictor["name"]: predictor["trafficPercent"] for predictor in predictors} == both
        for url in (first, second):
            assert await answered_by(url) in ("v1", "v2")
