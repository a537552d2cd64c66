"""An activator without an API: the held requests of one cluster, whose replicas a test sets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp

from serving import clock
from serving.router.activator.forwarding import BackendListener
from serving.router.activator.grpc_forwarding import GrpcListener
from serving.router.activator.held_backend import HeldBackend, RequestObserver
from serving.router.activator.request_queue import QueueTotals
from serving.router.plan.service import Cluster, socket_name
from serving.settings import ActivatorSettings
from tests.rig.servers.gateway import GatewayRig


def nothing(*_: Any) -> None:
    """Ignore an event of the observer."""


@contextlib.asynccontextmanager
async def activator(gateway: GatewayRig, cluster: Cluster, **settings: Any) -> AsyncIterator[HeldBackend]:
    """Yield the backend that holds the requests of this cluster."""
    chosen = replace(ActivatorSettings(), **settings)
    folder = gateway.data_dir.activator
    folder.mkdir(parents=True, exist_ok=True)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        held_backend = HeldBackend(cluster.name, chosen, QueueTotals(), RequestObserver(*[nothing] * 6))
        path = folder / socket_name(cluster.name)
        listener: BackendListener | GrpcListener = BackendListener(held_backend, path, chosen, session)
        if cluster.h2c:
            sockets = gateway.data_dir.pod_sockets
            listener = GrpcListener(held_backend, path, sockets=sockets, connect_seconds=1)
        await listener.open()
        try:
            yield held_backend
        finally:
            await listener.close()


async def until_waiting(held_backend: HeldBackend, count: Callable[[], int]) -> None:
    deadline = clock.monotonic() + 10
    while len(held_backend.queue) != count():
        assert clock.monotonic() < deadline, f"{len(held_backend.queue)} wait, not {count()}"
        await asyncio.sleep(0.005)
