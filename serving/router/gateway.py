"""The gateway's process: configures Envoy from the Routes, and reports what Envoy has accepted.

Traffic does not depend on it: Envoy survives its death, and the next gateway adopts Envoy; only in a Pod both
end together. It decides no weights, and writes only its own entry in the status of Routes and its own Lease.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import orjson

from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import EventRecorder, Informer, Key, Kube, connect_eventually
from serving.resources import kinds
from serving.router.envoy.admin import Admin
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.drain import FORCED_SECONDS, end, until_idle
from serving.router.envoy.huge_heap import keep_in_huge_pages
from serving.router.envoy.process import EnvoyProcess, digest
from serving.router.envoy.render import Renderer, starting
from serving.router.envoy.supervision import EnvoySupervision
from serving.router.metrics import lease_pages
from serving.router.metrics.collector import StatisticsCollector
from serving.router.metrics.labels import labels_of
from serving.router.plan.route_table import RouteTable
from serving.router.plan.service import (
    GatewayService,
    counts_tokens,
    gateway_service,
    services_used,
    slice_service_key,
)
from serving.router.prober import CandidateProbes, Prober
from serving.router.route_status import RouteStatusWriter
from serving.router.xds.grpc_server import listening
from serving.router.xds.server import DeltaXdsServer, Rejected
from serving.settings import Settings
from serving.system import processes
from serving.system.network import sockets
from serving.system.process_exit import has_ended_within
from serving.system.readiness import Readiness

log = logging.getLogger(__name__)

ENVOY_START_SECONDS = 20.0
"""Envoy starts in 0.2 s; with 2,000 clusters on a loaded machine it took 3 s."""
ADOPTION_SECONDS = 5.0
"""Longest wait for an Envoy that an earlier gateway started: its main thread is busy for up to 0.3 s."""
PLANNING_PAUSE_SHARE = 2.0
"""Pause after planning, in multiples of its time: planning takes at most a third of a core."""
_SERVICE = "service"
"""Index of Routes by the Services of their backends, and of EndpointSlices by their Service."""


async def run(data_dir: DataDir, settings: Settings) -> None:
    """Serve until cancelled; Envoy stays (see `stop_everything`).

    Raises:
        errors.UserError: no Envoy for this platform, or the port is taken.
    """
    await _run(data_dir, settings, _Running())


async def run_in_pod(
    data_dir: DataDir, settings: Settings, readiness: Readiness, stopping: asyncio.Event
) -> None:
    """Serve until the event, then drain Envoy and end with it: no process outlives its Pod.

    Raises:
        errors.UserError: no Envoy for this platform, or the port is taken.
    """
    running = _Running()
    readiness.follow(running.obstacle)
    work = asyncio.ensure_future(_run(data_dir, settings, running))
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            readiness.follow(lambda: "it is draining")
            async with Admin(data_dir.gateway / "admin.sock") as admin:
                await _leave(admin, running, settings)
            await end(EnvoyProcess(data_dir, settings.gateway))
    finally:
        stop.cancel()
        work.cancel()
        await asyncio.wait([work])
    with suppress(asyncio.CancelledError):
        work.result()


class _Running:
    """The parts of a gateway that runs, once it has them."""

    def __init__(self) -> None:
        self.gateway: Gateway | None = None
        self.supervision: asyncio.Task[None] | None = None

    def obstacle(self) -> str:
        """Return why the gateway is not ready; empty if it is."""
        return "Envoy or the API does not answer yet" if self.gateway is None else self.gateway.obstacle()


async def _run(data_dir: DataDir, settings: Settings, running: _Running) -> None:
    process = EnvoyProcess(data_dir, settings.gateway)
    async with Admin(data_dir.gateway / "admin.sock") as admin:
        server = DeltaXdsServer(data_dir.gateway, admin)
        config = orjson.dumps(
            bootstrap(
                settings.gateway,
                port=settings.gateway.port,
                sockets=server.sockets(),
                mark=_mark(data_dir),
            )
        )
        async with listening(server):
            if not await _adopt(process, config, server, data_dir, settings):
                # Envoy listens after a first response of each type; an adopted one keeps its configuration.
                server.set_target(starting(settings.gateway))
                log.info("started Envoy %d", process.start(config).pid)
                await server.wait_ready(ENVOY_START_SECONDS)
            collector = StatisticsCollector(settings.gateway.name, admin, process)
            pages: dict[str, Callable[[], Awaitable[str]]] = {
                metrics.PATH: collector.page,
                metrics.TOTALS_PATH: partial(collector.page, buckets=False),
            }
            kube = await connect_eventually(data_dir.kubeconfig, component="gateway")
            note, port = data_dir.metrics("gateway"), settings.gateway.metrics_port
            async with (
                kube,
                metrics.served(pages, note, settings.pages.host, port) as page,
                asyncio.TaskGroup() as group,
            ):
                log.info("metrics at %s", page.url)
                named = partial(lease_pages.annotations, data_dir, await lease_pages.advertised(page))
                gateway = Gateway(kube, server, collector, data_dir, settings, pages=named)
                running.gateway = gateway
                envoy = EnvoySupervision(process, config, data_dir.gateway, gateway.report_envoy)
                running.supervision = group.create_task(envoy.run())
                if settings.gateway.huge_pages:
                    group.create_task(keep_in_huge_pages(process))
                group.create_task(gateway.run())


def _mark(data_dir: DataDir) -> int | None:
    """Return the mark of connections to replicas; None where this process may set none.

    Only the replicas of an `up` ask for it. On a cluster marks belong to its network plugin and kube-proxy.
    """
    return sockets.GATEWAY_MARK if data_dir.is_of_up and sockets.can_mark() else None


async def stop_everything(data_dir: DataDir, settings: Settings) -> None:
    """Drain and stop this directory's Envoy, if it runs."""
    process = EnvoyProcess(data_dir, settings.gateway)
    if process.running() is None:
        return
    async with Admin(data_dir.gateway / "admin.sock") as admin:
        with _though_envoy_is_away():
            await admin.drain()
            await until_idle(admin, settings.gateway.drain_seconds)
    await end(process)


async def _leave(admin: Admin, running: _Running, settings: Settings) -> None:
    """Let clients leave, close the listeners, and wait for the requests in flight.

    Until the listeners close, everything runs on: a Pod that ends gets connections for some seconds more.
    """
    with _though_envoy_is_away():
        await admin.drain()
    await asyncio.sleep(settings.gateway.leave_seconds)
    if running.supervision is not None:  # Envoy with closed listeners would count as hung
        running.supervision.cancel()
    if running.gateway is not None:
        await running.gateway.leave()
    with _though_envoy_is_away():
        await admin.close_listeners()
        await until_idle(admin, settings.gateway.drain_seconds)


@contextmanager
def _though_envoy_is_away() -> Iterator[None]:
    try:
        yield
    except errors.Unavailable as error:
        log.warning("Envoy cannot be drained: %s", error)


class Gateway:
    """Keeps Envoy's configuration in step with Routes and EndpointSlices."""

    def __init__(
        self,
        kube: Kube,
        server: DeltaXdsServer,
        collector: StatisticsCollector,
        data_dir: DataDir,
        settings: Settings,
        *,
        pages: Callable[[], Mapping[str, str]],
    ) -> None:
        """Follow nothing yet; `pages` returns the annotations of the Lease that name metrics pages."""
        self._routes = Informer(kube, kinds.ROUTE)
        self._slices = Informer(kube, kinds.ENDPOINT_SLICE)
        self._slices.index(_SERVICE, lambda item: [slice_service_key(item)])
        self._routes.index(_SERVICE, services_used)
        self._routes.on_change(self._route_changed)
        self._slices.on_change(self._slice_changed)
        self._server = server
        self._renderer = Renderer(settings.gateway, SocketFolders.of(data_dir))
        recorder = EventRecorder(kube, "gateway")
        self._status = RouteStatusWriter(kube, self._routes, recorder, settings, pages)
        prober = Prober(data_dir.probe_socket, settings.gateway.probe_timeout_seconds)
        self._probes = CandidateProbes(prober, settings.gateway, self._status.probed)
        self._collector = collector
        self._changed: set[Key] = set()
        self._has_changes = asyncio.Event()
        self._target_lock = asyncio.Lock()
        self._has_target = asyncio.Event()
        self._has_answer = False
        """Whether Envoy has acknowledged a plan."""
        self._envoy_problem = ""
        self._reporting: asyncio.Task[None] | None = None
        self._table = RouteTable()
        self._desired: dict[Key, GatewayService] = {}
        self._accepted: dict[tuple[str, str], GatewayService] = {}
        self._rejected: dict[Key, tuple[GatewayService, str]] = {}
        """Services that Envoy is known to reject, with its messages."""
        self._unreported: dict[Key, tuple[int, GatewayService]] = {}
        """Services that Envoy has not acknowledged yet, with the first target version that has them."""

    async def run(self) -> None:
        """Follow the API until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._routes.run())
            group.create_task(self._slices.run())
            self._reporting = group.create_task(self._status.run())
            group.create_task(self._probes.run())
            # Before both are complete, a plan would take endpoints away from an adopted Envoy.
            await self._routes.synced.wait()
            await self._slices.synced.wait()
            self._has_changes.set()
            group.create_task(self._send_changes())
            group.create_task(self._follow_answers())

    def report_envoy(self, problem: str) -> None:
        """Report why Envoy serves nothing; empty if it serves."""
        self._envoy_problem = problem
        self._status.set_problem(problem)

    def obstacle(self) -> str:
        """Return why this gateway must get no requests; empty if it serves the Routes."""
        if not (self._routes.synced.is_set() and self._slices.synced.is_set()):
            return "Routes and EndpointSlices are not listed yet"
        # Without a Route there is no plan to acknowledge: Envoy, which listens, subscribes to no endpoints.
        is_planned = self._has_answer or not self._routes.items
        return self._envoy_problem or ("" if is_planned else "Envoy has acknowledged no plan yet")

    async def leave(self) -> None:
        """Count no more among the gateways, and report nothing; Envoy still gets every change."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait([self._reporting])
        await self._status.remove_lease()

    async def _send_changes(self) -> None:
        """Plan and send every change, without waiting for Envoy's answer to the previous one.

        The first change of a burst is sent at once, the others together after a pause.
        """
        while True:
            await self._has_changes.wait()
            async with self._target_lock:
                began = clock.monotonic()
                self._has_changes.clear()
                changed, self._changed = self._changed, set()
                for key in changed:
                    self._read(key)
                    self._put_best(key)
                self._collector.mark_routes_known()
                self._set_target()
            self._has_target.set()
            await asyncio.sleep(PLANNING_PAUSE_SHARE * (clock.monotonic() - began))

    async def _follow_answers(self) -> None:
        while True:
            await self._has_target.wait()
            self._has_target.clear()
            try:
                await self._wait_accepted()
            except Rejected as error:
                async with self._target_lock:
                    await self._isolate_rejected(str(error))

    def _read(self, key: Key) -> None:
        """Read a Route and its EndpointSlices from the caches."""
        route = self._routes.get(*key)
        self._collector.set_labels(
            key,
            labels_of(route) if route is not None else {},
            with_tokens=route is not None and counts_tokens(route),
        )
        if route is None:
            self._desired.pop(key, None)
            return
        slices = {
            backend["service"]: self._slices.by_index(_SERVICE, f"{key.namespace}/{backend['service']}")
            for backend in route["spec"].get("backends") or []
        }
        self._desired[key] = gateway_service(route, slices)

    def _put_best(self, key: Key) -> None:
        """Plan the desired service of a Route or, if Envoy is known to reject it, the last accepted one."""
        service, rejected = self._desired.get(key), self._rejected.get(key)
        if rejected is not None and rejected[0] != service:
            del self._rejected[key]
            rejected = None
        self._put(key, self._accepted.get(key) if rejected is not None else service)

    def _put(self, key: Key, service: GatewayService | None) -> None:
        self._table.put(key, service)
        self._unreported.pop(key, None)
        if service is None:
            self._probes.follow(key, None)
            self._status.forget(key)

    def _set_target(self) -> None:
        plan = self._table.take_changes()
        version = self._server.set_target(self._renderer.render(plan))
        for service in plan.services.values():
            if service is not None:
                self._unreported[Key(service.namespace, service.route)] = version, service
        for (namespace, name), reason in plan.routes.items():
            if reason:
                self._probes.follow(Key(namespace, name), None)
                self._status.refused(Key(namespace, name), reason)

    async def _wait_accepted(self) -> None:
        await self._server.wait_acknowledged(self._report_acknowledged)
        self._has_answer = True
        self._accepted = dict(self._table.services)

    async def _isolate_rejected(self, reason: str) -> None:
        """Return to the accepted plan and try one change at a time, so that only the rejected one fails."""
        accepted = self._accepted
        tried = self._table.services
        suspects = [Key(*key) for key in sorted({*accepted, *tried}) if accepted.get(key) != tried.get(key)]
        log.error("Envoy rejected an update of %d services: %s", len(suspects), reason)
        for key in suspects:
            self._put(key, accepted.get(key))
        self._set_target()
        await self._wait_accepted()
        for key in suspects:
            service = self._desired.get(key)
            self._put(key, service)
            try:
                self._set_target()
                await self._wait_accepted()
            except Rejected as error:
                self._put(key, accepted.get(key))
                if service is not None:
                    self._rejected[key] = (service, str(error))
        self._set_target()
        await self._wait_accepted()
        for key, (_, message) in self._rejected.items():
            self._report_rejected(key, message)

    def _report_acknowledged(self) -> None:
        """Report the services that Envoy has acknowledged, except those replaced before."""
        acknowledged = self._server.acknowledged_version
        reached = [key for key, (version, _) in self._unreported.items() if version <= acknowledged]
        for key in reached:
            _, service = self._unreported.pop(key)
            message = (self._rejected.get(key) or (None, ""))[1]
            self._status.accepted(key, service, message, self._probes.follow(key, service))

    def _report_rejected(self, key: Key, reason: str) -> None:
        service = self._accepted.get(key)
        if service is None:
            self._status.refused(key, reason)
        else:
            self._status.accepted(key, service, reason, self._probes.follow(key, service))

    def _route_changed(self, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        if before is not None and after is not None and _spec(before) == _spec(after):
            return  # our own status, most of the time
        self._mark_changed(Key.of(after or before or {}))

    def _slice_changed(self, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        for item in (before, after):
            if item is not None:
                for route in self._routes.by_index(_SERVICE, slice_service_key(item)):
                    self._mark_changed(Key.of(route))

    def _mark_changed(self, key: Key) -> None:
        self._changed.add(key)
        if self._routes.synced.is_set() and self._slices.synced.is_set():
            self._has_changes.set()


def _spec(route: dict[str, object]) -> object:
    meta = route["metadata"]
    assert isinstance(meta, dict)
    return (meta.get("generation"), meta.get("uid"), route.get("spec"))


async def _adopt(
    process: EnvoyProcess, config: bytes, server: DeltaXdsServer, data_dir: DataDir, settings: Settings
) -> bool:
    """Adopt a running Envoy with this configuration; drain and stop one with another, and kill a hung one."""
    running = process.running()
    if running is None:
        return False
    if running.bootstrap != digest(config):
        log.info("Envoy %d was started with another configuration: draining it", running.pid)
        await stop_everything(data_dir, settings)
        return False
    try:
        await server.wait_ready(ADOPTION_SECONDS)
    except errors.Unavailable as error:
        log.error("Envoy %d cannot be adopted, killing it: %s", running.pid, error)  # noqa: TRY400
        processes.send_signal(running.process, signal.SIGKILL)
        await has_ended_within(running.process, FORCED_SECONDS)
        return False
    log.info("adopted Envoy %d", running.pid)
    return True
