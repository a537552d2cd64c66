"""A gateway without an API: a real Envoy, and small backends on loopback addresses."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds
from serving.router import gateway
from serving.router.envoy.admin import Admin
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.counts.count_table import CountTable
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.router.envoy.render import Renderer
from serving.router.plan.route_table import RoutePlanChanges, RouteTable
from serving.router.plan.service import GatewayService, gateway_service
from serving.router.xds.grpc_server import listening
from serving.router.xds.server import DeltaXdsServer
from serving.settings import GatewaySettings, Settings
from serving.system.network import sockets
from serving.system.network.kept_sockets import KeptSockets
from tests.rig.machine.ports import free_port
from tests.rig.machine.tcp_server import tcp_server


@contextlib.asynccontextmanager
async def in_background(process: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutine of a component, cancel it as SIGTERM does, and raise its error."""
    task = asyncio.create_task(process)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def running_gateway(data_dir: DataDir, settings: Settings) -> AsyncIterator[None]:
    """Run a gateway's process; its Envoy stays, without the socket that the gateway kept."""
    with contextlib.closing(KeptSockets()) as kept:
        async with in_background(gateway.run(data_dir, settings, kept=kept)):
            yield


@contextlib.contextmanager
def envoys_have_ended() -> Iterator[None]:
    """Fail if an Envoy that the block starts still runs.

    One that has ended is a zombie until this waits for it.
    """
    started: list[EnvoyProcess] = []
    start = EnvoyProcess.start

    def recorded(process: EnvoyProcess, config: bytes) -> RunningEnvoy:
        envoy = start(process, config)
        started.append(process)
        return envoy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvoyProcess, "start", recorded)
        yield
    running = [process for process in started if process.exit_code() is None]
    assert not running


@contextlib.asynccontextmanager
async def gateway_of_api(
    kube: Kube, kubeconfig: Path, folder: Path, settings: Settings
) -> AsyncIterator[None]:
    """Run a gateway of an API with an Envoy and a new directory of its own, below `folder`.

    At the end its Lease is deleted, so that it counts as gone at once for later tests with this API.
    """
    name = settings.gateway.name
    data_dir = DataDir(folder / name)
    data_dir.root.mkdir()
    shutil.copy(kubeconfig, data_dir.kubeconfig)
    try:
        async with running_gateway(data_dir, settings):
            yield
    finally:
        await gateway.stop_everything(data_dir, settings)
        await remove_lease(kube, settings.controllers.lease_namespace, name)


async def remove_lease(kube: Kube, namespace: str, name: str) -> None:
    """Let a gateway count as gone."""
    with contextlib.suppress(errors.NotFound):
        await kube.delete(kinds.LEASE, namespace, f"slipway-gateway-{name}")


def settings_for_test(**of_gateway: Any) -> Settings:
    return Settings(gateway=GatewaySettings(port=free_port(), drain_seconds=2.0, **of_gateway))


def route(
    name: str,
    weights: list[tuple[str, int]],
    *,
    namespace: str = "default",
    port: int = 8080,
    sticky: dict[str, str] | None = None,
    generation: int = 1,
    unweighted: Iterable[str] = (),
    on_demand: Iterable[str] = (),
    h2c: Iterable[str] = (),
) -> dict[str, Any]:
    """Return a Route; its backends, Services and Autoscalers are named `<name>-<arm>`."""
    arms = list(dict.fromkeys([arm for arm, _ in weights] + list(unweighted)))
    spec: dict[str, Any] = {
        "inference": name,
        "backends": [
            {
                "name": f"{name}-{a}",
                "arm": a,
                "service": f"{name}-{a}",
                "port": port,
                "modelVersion": f"{name}-{a}-v1",
            }
            for a in arms
        ],
        "segments": [{"backend": f"{name}-{arm}", "size": size} for arm, size in weights],
    }
    for backend in spec["backends"]:
        if backend["arm"] in on_demand:
            backend |= {"onDemand": True, "autoscaler": backend["name"]}
        if backend["arm"] in h2c:
            backend["protocol"] = "h2c"
    if sticky:
        spec["sticky"] = sticky
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Route",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "generation": generation,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
    }


def endpoint_slice(
    service: str,
    addresses: Iterable[str],
    *,
    port: int = 8080,
    namespace: str = "default",
    ready: bool = True,
) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-1",
            "namespace": namespace,
            "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [a], "conditions": {"ready": ready}} for a in addresses],
        "ports": [{"name": "http", "port": port}],
    }


def replaced(table: RouteTable, services: Iterable[GatewayService]) -> RoutePlanChanges:
    """Replace all services of the table, and return the changes."""
    by_key = {(service.namespace, service.route): service for service in services}
    for key in {*table.services, *by_key}:
        table.put(key, by_key.get(key))
    return table.take_changes()


class GatewayRig:
    """A real Envoy that gets route plans directly."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.settings = settings
        self.data_dir = DataDir(root)
        self.kept = KeptSockets()
        self.process = EnvoyProcess(self.data_dir, settings.gateway, self.kept)
        self.admin = Admin(self.data_dir.admin_socket)
        self.xds = DeltaXdsServer(self.data_dir, self.admin)
        self.table = RouteTable()
        self.renderer = Renderer(settings.gateway, SocketFolders.of(self.data_dir))
        self._around = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.gateway.port}"

    def counts(self) -> CountTable:
        """Return the counts of the Envoy that runs."""
        running = self.process.running()
        assert running is not None
        return CountTable(running.pid)

    async def start(self) -> None:
        await self.listen()
        self.xds.set_target(self.renderer.render(RoutePlanChanges()))
        self.process.start(self.config())
        await self.xds.wait_ready(20)

    async def listen(self) -> None:
        """Listen for an Envoy, which another process may have started."""
        await self._around.enter_async_context(listening(self.xds))

    def config(self) -> bytes:
        return orjson.dumps(
            bootstrap(
                self.settings.gateway,
                port=self.settings.gateway.port,
                sockets=self.xds.sockets(),
                mark=sockets.GATEWAY_MARK if sockets.can_mark() else None,
            )
        )

    async def serve(self, routes: Iterable[dict[str, Any]], slices: Iterable[dict[str, Any]]) -> None:
        by_service: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for item in slices:
            meta = item["metadata"]
            key = (meta["namespace"], meta["labels"]["kubernetes.io/service-name"])
            by_service.setdefault(key, []).append(item)
        services = [
            gateway_service(
                r, {s: v for (ns, s), v in by_service.items() if ns == r["metadata"]["namespace"]}
            )
            for r in routes
        ]
        await self.xds.apply(self.renderer.render(replaced(self.table, services)))

    async def stop(self, drain_seconds: float = 0.2) -> None:
        quick = replace(self.settings, gateway=replace(self.settings.gateway, drain_seconds=drain_seconds))
        self.kept.close()
        await gateway.stop_everything(self.data_dir, quick)
        self.process.exit_code()  # waits for the child, which has ended
        await self._around.aclose()
        await self.admin.close()

    async def raw(self, request: bytes) -> bytes:
        """Send a request byte for byte, as a client library would normalize its path."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.settings.gateway.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        writer.close()
        return head + body


def _length(head: bytes) -> int:
    match = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return int(match.group(1)) if match else 0


@contextlib.asynccontextmanager
async def gateway_rig(root: Path, **of_gateway: Any) -> AsyncIterator[GatewayRig]:
    rig = GatewayRig(root, settings_for_test(**of_gateway))
    await rig.start()
    try:
        yield rig
    finally:
        await rig.stop()


@contextlib.asynccontextmanager
async def backend(
    address: str, port: int, *, name: str = "", seconds: float = 0.0
) -> AsyncIterator[dict[str, int]]:
    """Run an HTTP/1.1 replica that answers with its name and the request; yield its counters."""
    seen = {"requests": 0, "active": 0}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
            if length := int(headers.get("content-length", 0)):
                await reader.readexactly(length)
            seen["requests"] += 1
            seen["active"] += 1
            if seconds:
                await asyncio.sleep(seconds)
            path = lines[0].split(" ")[1]
            body = orjson.dumps({"name": name, "path": path, "headers": headers})
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            seen["active"] -= 1

    async with tcp_server(answer, address, port, is_idle=lambda: seen["active"] == 0):
        yield seen
