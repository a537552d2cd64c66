"""The Inference `digits` on an API: what its user writes and reads, its replicas, and its gateways."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.settings import GatewaySettings, Settings
from tests.objects import rights_stories as stories
from tests.objects.contract_objects import eventually
from tests.rig.machine.ports import free_port
from tests.rig.servers.gateway import gateway_of_api

REFUSAL = "the model is being loaded"
"""Answer of a revision that is not ready; Envoy's own 503, without an endpoint yet, has another text."""
STORY_SECONDS = 60.0
"""Longest wait for one step, which takes some seconds on a machine with other work."""


class DigitsReplicas:
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
class DigitsWorld:
    """A namespace with the Inference `digits`, as its user sees it."""

    kube: Kube
    namespace: str
    kubeconfig: Path
    root: Path
    settings: Settings
    scheduler: str
    replicas: DigitsReplicas

    def predictor(self, name: str, version: str, readiness: str, weight: int) -> Object:
        """Return a predictor whose revisions have a readiness path, by which gateways prove them."""
        predictor = stories.predictor(self.scheduler, name=name, modelVersion=version, trafficWeight=weight)
        probe = {"httpGet": {"path": readiness, "port": names.RUNTIME_PORT}}
        predictor["template"]["containers"][0]["readinessProbe"] = probe
        return predictor

    def split(self, stable: int, canary: int) -> list[Object]:
        """Return two predictors, of v1 and of v2, with these weights."""
        return [
            self.predictor("stable", "v1", "/first", stable),
            self.predictor("canary", "v2", "/first", canary),
        ]

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


def accepted_weights(route: Object) -> dict[str, dict[str, float]]:
    """Return the weights in percent by gateway and arm, of gateways that accepted the newest generation."""
    entries = (route.get("status") or {}).get("gateways") or []
    return {
        entry["name"]: {weight["arm"]: weight["percent"] for weight in entry["weights"]}
        for entry in entries
        if entry["acceptedGeneration"] == route["metadata"]["generation"]
    }


async def answered_by(url: str) -> str:
    """Send a request; return the model version that served it."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers[names.SERVED_VERSION_HEADER]


async def keep_asking(url: str, answers: list[int]) -> None:
    """Send one request after another, and keep the status of each; 0 for one without an answer in time."""
    patience = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=patience) as session:
        while True:
            try:
                async with session.get(url) as answer:
                    answers.append(answer.status)
            except (aiohttp.ClientError, TimeoutError):
                answers.append(0)
            await asyncio.sleep(0.01)
