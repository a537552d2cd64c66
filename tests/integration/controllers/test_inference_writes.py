"""The writes of one change of an Inference: real controllers and API, fake node and gateway."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from autoscaler.controller import AutoscalerController
from serving import clock
from serving.controllers.inference import InferenceController
from serving.data_dir import DataDir
from serving.kube import Informer, Kube, Watches, connect
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS
from tests.fakes.surroundings import inference, predictor, ready_version
from tests.rig.control_plane.convergence import running, until

WATCHED = (kinds.INFERENCE, kinds.ROUTE, kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.EVENT_V1)


class ReportingSurroundings:
    """A node and a gateway that report at once, and a record of every write in one namespace."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.gateway = f"test-{namespace}"
        self.writes: list[str] = []
        """The kind of each write, with `status` if only that has changed."""
        self._todo: asyncio.Queue[Callable[[], Any]] = asyncio.Queue()
        self._informers = {kind: Informer(kube, kind, namespace=namespace) for kind in WATCHED}
        for kind, informer in self._informers.items():
            informer.on_change(lambda before, after, kind=kind: self._changed(kind, before, after))

    @property
    def inference(self) -> Object:
        return next(iter(self._informers[kinds.INFERENCE]), {})

    def is_ready(self, generation: int) -> bool:
        """Whether clients see this generation as Ready."""
        condition = conditions.find((self.inference.get("status") or {}).get("conditions"), "Ready") or {}
        return (condition.get("status"), condition.get("observedGeneration")) == ("True", generation)

    def _changed(self, kind: kinds.Kind, before: Object | None, after: Object | None) -> None:
        if after is None:
            return
        parts = {key for key in ("spec", "metadata") if _own(before, key) != _own(after, key)}
        self.writes.append(kind.kind if parts else f"{kind.kind} status")
        if kind is kinds.DEPLOYMENT and "spec" in parts:
            self._todo.put_nowait(lambda: self._report(after))
        if kind is kinds.ROUTE and "spec" in parts:
            self._todo.put_nowait(lambda: self._accept(after))

    async def _report(self, deployment: Object) -> None:
        count = deployment["spec"]["replicas"]
        status = {"replicas": count, "readyReplicas": count}
        await self.kube.apply_status(kinds.DEPLOYMENT, deployment, status)

    async def _accept(self, route: Object) -> None:
        entry = {
            "name": self.gateway,
            "acceptedGeneration": route["metadata"]["generation"],
            "address": "127.0.0.1:1",
            "probes": [
                {"backend": backend["name"]} for backend in route["spec"]["backends"] if "probe" in backend
            ],
        }
        await self.kube.apply_status(
            kinds.ROUTE, route, {"gateways": [entry]}, manager="slipway-gateway-test"
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            while True:
                await (await self._todo.get())()


def _own(obj: Object | None, key: str) -> Object:
    part = (obj or {}).get(key) or {}
    return {name: part[name] for name in part if name not in ("resourceVersion", "managedFields")}


@pytest.fixture
async def surroundings(api_server: DataDir) -> AsyncIterator[ReportingSurroundings]:
    """Run the controllers, with ready ModelVersions v1 and v2."""
    namespace = f"writes-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(await connect(api_server.kubeconfig, component=name))
            for name in ("inference", "autoscaler", "test")
        ]
        kube = clients[-1]
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        around = ReportingSurroundings(kube, namespace)
        lease = {
            "metadata": {"name": f"slipway-gateway-{around.gateway}", "namespace": "default"},
            "spec": {"renewTime": clock.rfc3339_micro(clock.now()), "leaseDurationSeconds": 600},
        }
        await kube.create(kinds.LEASE, lease)
        stack.push_async_callback(kube.delete, kinds.LEASE, "default", lease["metadata"]["name"])
        for name in ("v1", "v2"):
            version = ready_version(name, namespace=namespace)
            created = await kube.create(kinds.MODEL_VERSION, version)
            await kube.apply_status(kinds.MODEL_VERSION, created, version["status"])
        watches = Watches(clients[0])
        controller = InferenceController(clients[0], DEFAULTS.controllers, watches)
        scaler = AutoscalerController(clients[1], DEFAULTS.controllers, watches)
        async with running(around.run(), controller.run(), scaler.run(), watches.run()):
            yield around


async def test_a_change_of_weights_is_four_writes_and_no_event(surroundings: ReportingSurroundings) -> None:
    kube, namespace = surroundings.kube, surroundings.namespace
    body = inference(predictor("stable", "v1", 90), predictor("new", "v2", 10))
    body["metadata"]["namespace"] = namespace
    await kube.create(kinds.INFERENCE, body)
    await until(lambda: surroundings.is_ready(1))
    await until(lambda: surroundings.writes.count("Autoscaler status") >= 2)
    await quiet(surroundings)
    before = len(surroundings.writes)
    changed = [predictor("stable", "v1", 50), predictor("new", "v2", 50)]
    await kube.patch(kinds.INFERENCE, namespace, "digits", {"spec": {"predictors": changed}})
    await until(lambda: surroundings.is_ready(2))
    await quiet(surroundings)
    assert sorted(surroundings.writes[before:]) == ["Inference", "Inference status", "Route", "Route status"]
    await kube.delete(kinds.INFERENCE, namespace, "digits")
    await until(lambda: not surroundings.inference)


async def quiet(surroundings: ReportingSurroundings) -> None:
    """Wait until there was no write for longer than a status is held back."""
    loop = asyncio.get_running_loop()
    seen, since = -1, loop.time()
    while loop.time() < since + 1.5 * DEFAULTS.controllers.status_settle_seconds:
        if len(surroundings.writes) != seen:
            seen, since = len(surroundings.writes), loop.time()
        await asyncio.sleep(0.05)
