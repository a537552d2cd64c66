"""The gateway's Envoy and xDS server with plans set directly, for benchmarks of the data plane."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from rig.data_plane.proxies import free_port
from serving.data_dir import DataDir
from serving.router.envoy.admin import Admin
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.local_replies import Json
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.router.envoy.process.huge_heap import keep_in_huge_pages
from serving.router.envoy.render import Renderer
from serving.router.gateway import stop_everything
from serving.router.plan.route_table import RoutePlanChanges, RouteTable
from serving.router.plan.service import Cluster, ClusterSegment, Endpoint, GatewayService
from serving.router.xds.grpc_server import listening
from serving.router.xds.server import DeltaXdsServer
from serving.settings import DEFAULTS

Arm = tuple[str, int, Sequence[Endpoint]]


def service(name: str, arms: Iterable[Arm]) -> GatewayService:
    """A service with (arm, weight of 10,000, endpoints)."""
    arms = list(arms)
    clusters = tuple(Cluster(f"default/{name}-{arm}/8080", tuple(where)) for arm, _, where in arms)
    ring = tuple(ClusterSegment(f"default/{name}-{arm}/8080", arm, "v1", weight) for arm, weight, _ in arms)
    return GatewayService("default", name, name, 1, "", ring, None, clusters, (), ())


class EnvoyWorld:
    """One Envoy."""

    def __init__(self, root: Path, **gateway: Any) -> None:
        """Args: gateway: settings of the gateway that differ from the defaults."""
        self.settings = replace(DEFAULTS, gateway=replace(DEFAULTS.gateway, port=free_port(), **gateway))
        self.data_dir = DataDir(root)
        self.process = EnvoyProcess(self.data_dir, self.settings.gateway)
        self.admin = Admin(self.data_dir.admin_socket)
        self.xds = DeltaXdsServer(self.data_dir, self.admin)
        self.table = RouteTable()
        self.renderer = Renderer(self.settings.gateway, SocketFolders.of(self.data_dir))

    @property
    def port(self) -> int:
        return self.settings.gateway.port

    async def start(self, change: Callable[[Json], None] = lambda _: None) -> RunningEnvoy:
        self.xds.set_target(self.renderer.render(RoutePlanChanges()))
        config = bootstrap(self.settings.gateway, port=self.port, sockets=self.xds.sockets())
        change(config)
        identity = self.process.start(orjson.dumps(config))
        await self.xds.wait_ready(20)
        return identity

    async def serve(self, services: Iterable[GatewayService]) -> None:
        """Add these services; a service of the same name is replaced."""
        self.put(services)
        await self.xds.apply(self.renderer.render(self.table.take_changes()))

    def put(self, services: Iterable[GatewayService]) -> None:
        for added in services:
            self.table.put((added.namespace, added.route), added)


@contextlib.asynccontextmanager
async def world(
    change: Callable[[Json], None] = lambda _: None,
    *,
    moves_heap: bool = True,
    **gateway: Any,
) -> AsyncIterator[tuple[EnvoyWorld, RunningEnvoy]]:
    """One Envoy while the block runs.

    Args:
        change: edits the bootstrap.
        moves_heap: whether its heap is moved into huge pages, as by the gateway of a privileged user.
        gateway: settings of the gateway that differ from the defaults.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as root:
        envoy = EnvoyWorld(Path(root), **gateway)
        async with listening(envoy.xds), asyncio.TaskGroup() as group:
            identity = await envoy.start(change)
            heap = group.create_task(keep_in_huge_pages(envoy.process)) if moves_heap else None
            try:
                yield envoy, identity
            finally:
                if heap is not None:
                    heap.cancel()
                quick = replace(envoy.settings, gateway=replace(envoy.settings.gateway, drain_seconds=0.0))
                await stop_everything(envoy.data_dir, quick)
                await envoy.admin.close()
