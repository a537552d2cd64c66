"""The gateway's process: runs Envoy, applies the Routes to Envoy, and drains and stops Envoy.

Traffic does not depend on this process: Envoy survives its death, and the next gateway adopts Envoy; only in
a Pod both end together. A gateway decides no weights, and writes only its own entry in the status of Routes
and its own Lease.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import orjson

from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import connect_eventually
from serving.router import pod_lifetime
from serving.router.envoy.admin import LIVE, STARTING, Admin
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.process import public_socket
from serving.router.envoy.process.drain import FORCED_SECONDS, POLL_SECONDS, end_envoy, wait_until_idle
from serving.router.envoy.process.envoy_process import EnvoyProcess, digest
from serving.router.envoy.process.huge_heap import keep_in_huge_pages
from serving.router.envoy.process.supervision import EnvoySupervision
from serving.router.envoy.render import starting
from serving.router.metrics import lease_pages
from serving.router.metrics.collector import StatisticsCollector
from serving.router.route_applier import RouteApplier
from serving.router.xds.grpc_server import listening
from serving.router.xds.server import DeltaXdsServer
from serving.settings import Settings
from serving.system import processes
from serving.system.network import sockets
from serving.system.network.kept_sockets import KeptSockets
from serving.system.process_exit import has_ended_within
from serving.system.readiness import Readiness

log = logging.getLogger(__name__)

ENVOY_START_SECONDS = 20.0
"""Envoy starts in 0.2 s; with 2,000 clusters on a loaded machine it took 3 s."""
ROUTES_SECONDS = 3.0
"""Longest time for which clients wait for the Routes: from then on a new Envoy answers with 503."""
ADOPTION_SECONDS = 5.0
"""Longest wait for an Envoy that an earlier gateway started: its main thread is busy for up to 0.3 s."""


async def run(data_dir: DataDir, settings: Settings, *, kept: KeptSockets) -> None:
    """Serve until cancelled; Envoy runs on (`stop_everything` ends it).

    Args:
        data_dir: of this gateway.
        settings: all settings.
        kept: keeps the socket of Envoy's public listener. At first it has the socket of the last gateway, if
            that passed one.

    Raises:
        errors.UserError: no Envoy for this platform, or the port is taken.
    """
    await _run(data_dir, settings, _Running(kept))


async def run_in_pod(
    data_dir: DataDir, settings: Settings, readiness: Readiness, stopping: asyncio.Event, *, kept: KeptSockets
) -> None:
    """Serve until `stopping`, then drain Envoy and end with Envoy: no process outlives its Pod.

    Args:
        data_dir: of this gateway.
        settings: all settings.
        readiness: of this container.
        stopping: set by SIGTERM.
        kept: as of `run`.

    Raises:
        errors.UserError: no Envoy for this platform, or the port is taken.
    """
    running = _Running(kept)
    readiness.follow(running.obstacle)

    async def leave() -> None:
        readiness.follow(lambda: "it is draining")
        async with Admin(data_dir.admin_socket) as admin:
            await _close(admin, running, settings)
        await end_envoy(EnvoyProcess(data_dir, settings.gateway))

    await pod_lifetime.run(_run(data_dir, settings, running), stopping, leave)


class _Running:
    """The parts of a gateway that runs; None until the gateway has made them."""

    def __init__(self, kept: KeptSockets) -> None:
        self.kept = kept
        self.is_listening = False
        """Whether Envoy has its first configuration and listens."""
        self.routes: RouteApplier | None = None
        self.supervision: asyncio.Task[None] | None = None

    def obstacle(self) -> str:
        """Return why the gateway is not ready; empty if it is."""
        if self.routes is None or not self.is_listening:
            return "Envoy or the API does not answer yet"
        return self.routes.obstacle()


async def _run(data_dir: DataDir, settings: Settings, running: _Running) -> None:
    process = EnvoyProcess(data_dir, settings.gateway, running.kept)
    async with Admin(data_dir.admin_socket) as admin:
        server = DeltaXdsServer(data_dir, admin)
        config = orjson.dumps(
            bootstrap(
                settings.gateway,
                port=settings.gateway.port,
                sockets=server.sockets(),
                mark=_mark(data_dir),
            )
        )
        async with listening(server), asyncio.TaskGroup() as starting_envoy:
            state = await _adopt(process, config, admin, data_dir, settings)
            if not state:
                log.info("started Envoy %d", process.start(config).pid)
            running.is_listening = state == LIVE
            if not running.is_listening:
                starting_envoy.create_task(_until_listening(process, server, settings, running))
            collector = StatisticsCollector(settings.gateway.name, admin, process, data_dir.earlier_answers)
            pages: dict[str, Callable[[], Awaitable[str]]] = {
                metrics.PATH: collector.page,
                metrics.TOTALS_PATH: partial(collector.page, buckets=False),
            }
            kube = await connect_eventually(data_dir.kubeconfig, component="gateway")
            address_file, port = data_dir.metrics("gateway"), settings.gateway.metrics_port
            async with (
                kube,
                metrics.served(pages, address_file, settings.pages.host, port) as page,
                asyncio.TaskGroup() as group,
            ):
                log.info("metrics at %s", page.url)
                annotations = partial(lease_pages.annotations, data_dir, await lease_pages.advertised(page))
                routes = RouteApplier(kube, server, collector, data_dir, settings, pages=annotations)
                running.routes = routes

                def envoy_started() -> None:
                    group.create_task(_answer_without_routes(server, settings))

                envoy = EnvoySupervision(
                    process, config, data_dir, routes.report_envoy, on_start=envoy_started
                )
                running.supervision = group.create_task(envoy.run())
                if settings.gateway.huge_pages:
                    group.create_task(keep_in_huge_pages(process))
                group.create_task(routes.run())


async def _until_listening(
    process: EnvoyProcess, server: DeltaXdsServer, settings: Settings, running: _Running
) -> None:
    """Wait until a new Envoy listens, with the Routes or without.

    Raises:
        errors.Unavailable: Envoy is not ready in time, and has been ended.
    """
    await _answer_without_routes(server, settings)
    try:
        await server.wait_ready(ENVOY_START_SECONDS)
    except errors.Unavailable:
        await end_envoy(process)  # the next gateway would adopt it
        raise
    running.is_listening = True


async def _answer_without_routes(server: DeltaXdsServer, settings: Settings) -> None:
    """Let a new Envoy answer with 503 if there are no Routes after `ROUTES_SECONDS`.

    Envoy listens after a first xDS response of each type, and clients may wait at its socket meanwhile. Not
    for an adopted Envoy, which still has its routes.
    """
    if not await server.has_target_within(ROUTES_SECONDS):
        server.set_target(starting(settings.gateway))


def _mark(data_dir: DataDir) -> int | None:
    """Return the SO_MARK of Envoy's connections to replicas; None for no mark.

    Only the replicas of an `up` accept connections by this mark. On a cluster, marks belong to the network
    plugin and kube-proxy. A gateway that may set no mark has an Envoy that may set none either.
    """
    return sockets.GATEWAY_MARK if data_dir.is_of_up and sockets.can_mark() else None


async def stop_everything(data_dir: DataDir, settings: Settings) -> None:
    """Drain and stop this directory's Envoy, if it runs."""
    process = EnvoyProcess(data_dir, settings.gateway)
    if process.running() is None:
        return
    async with Admin(data_dir.admin_socket) as admin:
        with _though_envoy_is_away():
            await admin.drain()
            await wait_until_idle(admin, settings.gateway.drain_seconds)
    await end_envoy(process)


async def _close(admin: Admin, running: _Running, settings: Settings) -> None:
    """Close connections after their next answer, remove the Lease, close the listeners, wait for the requests
    in flight, and remove the entries in the status of Routes.
    """
    with _though_envoy_is_away():
        await admin.drain()
    # A Pod that ends gets new connections until kube-proxies and load balancers know of its end.
    await asyncio.sleep(settings.gateway.leave_seconds)
    if running.supervision is not None:  # an Envoy with closed listeners would count as hung
        running.supervision.cancel()
    if running.routes is not None:
        await running.routes.leave()
    with _though_envoy_is_away():
        await admin.close_listeners()
    public_socket.close(running.kept)  # else clients would wait for an Envoy that will not come
    with _though_envoy_is_away():
        await wait_until_idle(admin, settings.gateway.drain_seconds)
    if running.routes is not None:
        await running.routes.withdraw()


@contextmanager
def _though_envoy_is_away() -> Iterator[None]:
    """Log that Envoy does not answer, and go on: an Envoy that has ended has nothing to drain."""
    try:
        yield
    except errors.Unavailable as error:
        log.warning("Envoy cannot be drained: %s", error)


async def _adopt(
    process: EnvoyProcess, config: bytes, admin: Admin, data_dir: DataDir, settings: Settings
) -> str:
    """Adopt a running Envoy with this bootstrap, and return its state; empty if no Envoy runs any more.

    An Envoy with another bootstrap is drained and ended, and an Envoy that does not answer is killed.
    """
    running = process.running()
    if running is None:
        return ""
    process.keep_socket(running)
    if running.bootstrap != digest(config):
        log.info("Envoy %d was started with another configuration: draining it", running.pid)
        await stop_everything(data_dir, settings)
        return ""
    try:
        state = await _state(admin)
    except errors.Unavailable as error:
        log.error("Envoy %d cannot be adopted, killing it: %s", running.pid, error)  # noqa: TRY400
        processes.send_signal(running.process, signal.SIGKILL)
        await has_ended_within(running.process, FORCED_SECONDS)
        return ""
    log.info("adopted Envoy %d, %s", running.pid, state)
    return state


async def _state(admin: Admin) -> str:
    """Return the state of an Envoy that is live or starting.

    Raises:
        errors.Unavailable: it is neither after `ADOPTION_SECONDS`.
    """
    deadline = clock.monotonic() + ADOPTION_SECONDS
    while True:
        try:
            state = await admin.state()
        except errors.Unavailable:
            if clock.monotonic() > deadline:
                raise
        else:
            if state == LIVE or state in STARTING:
                return state
            if clock.monotonic() > deadline:
                raise errors.Unavailable(f"its state is {state}")
        await asyncio.sleep(POLL_SECONDS)
