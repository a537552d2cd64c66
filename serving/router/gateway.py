"""The gateway's process: reads Routes and EndpointSlices, has Envoy serve them, and says what was accepted.

Traffic never depends on it: Envoy lives on when it is killed, and the next one adopts Envoy. It decides
nothing about weights, and writes nothing but its own entry in Route status and its own Lease.
"""

import asyncio
import logging
import signal

import orjson

from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import EventRecorder, Informer, Key, Kube, connect_eventually
from serving.resources import kinds
from serving.router.envoy.admin import Admin
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.process import EnvoyProcess, digest
from serving.router.envoy.render import Renderer
from serving.router.metrics.collector import Signals
from serving.router.metrics.labels import labels_of
from serving.router.plan.route_table import Assembly, RoutePlan
from serving.router.plan.service import Service, service_of, service_of_slice, services_used
from serving.router.route_status import Reporter
from serving.router.xds.grpc_stream import listening
from serving.router.xds.server import Delivery, Rejected
from serving.settings import Settings
from serving.system import processes
from serving.system.process_exit import has_ended_within

log = logging.getLogger(__name__)

ENVOY_START_SECONDS = 20.0
"""Envoy starts in 0.2 s; a loaded machine with 2,000 clusters was seen to take 3 s."""
PAUSE_SHARE = 2.0
"""Pause after planning, in multiples of what it took: a burst of changes is gathered into a third of a core at most."""
FORCED_SECONDS = 2.0
"""After SIGTERM Envoy exits in 0.1 s; then SIGKILL."""


async def run(data_dir: DataDir, settings: Settings) -> None:
    """Serve until cancelled; Envoy stays (see `stop_everything`).

    Raises:
        errors.UserError: no Envoy for this platform, or the port is taken.
    """
    process = EnvoyProcess(data_dir, settings.gateway)
    async with Admin(data_dir.gateway / "admin.sock") as admin:
        delivery = Delivery(data_dir.gateway, admin)
        config = orjson.dumps(
            bootstrap(settings.gateway, port=settings.gateway.port, sockets=delivery.sockets())
        )
        async with listening(delivery):
            if not await _adopted(process, config, data_dir, settings):
                # It listens once it has been told something; one that was adopted keeps what it has.
                delivery.aim(Renderer(settings.gateway, str(data_dir.activator)).render(RoutePlan()))
                log.info("started Envoy %d", process.start(config).pid)
            await delivery.wait_ready(ENVOY_START_SECONDS)
            signals = Signals(admin, process)
            kube = await connect_eventually(data_dir.kubeconfig, component="gateway")
            async with (
                kube,
                metrics.served(
                    signals.page, data_dir.metrics("gateway"), settings.gateway.metrics_port
                ) as page,
                asyncio.TaskGroup() as group,
            ):
                log.info("metrics at http://%s:%d/metrics", metrics.HOST, page)
                gateway = Gateway(kube, delivery, signals, data_dir, settings)
                group.create_task(_keep_alive(process, config, settings))
                group.create_task(gateway.run())


async def stop_everything(data_dir: DataDir, settings: Settings) -> None:
    """Drain this directory's Envoy and stop it; without one, nothing happens."""
    running = EnvoyProcess(data_dir, settings.gateway).running()
    if running is None:
        return
    async with Admin(data_dir.gateway / "admin.sock") as admin:
        try:
            await admin.drain()
            await _until_idle(admin, settings.gateway.drain_seconds)
        except errors.Unavailable as error:
            log.warning("Envoy cannot be drained: %s", error)
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes.send_signal(running.process, number)
        if await has_ended_within(running.process, FORCED_SECONDS):
            return


async def _until_idle(admin: Admin, seconds: float) -> None:
    deadline = clock.monotonic() + seconds
    while await admin.active():
        if clock.monotonic() > deadline:
            log.warning("requests were still in flight after %s s of draining", seconds)
            return
        await asyncio.sleep(0.05)


class Gateway:
    """One gateway: what it last read, and what Envoy last accepted."""

    def __init__(
        self, kube: Kube, delivery: Delivery, signals: Signals, data_dir: DataDir, settings: Settings
    ) -> None:
        self._routes = Informer(kube, kinds.ROUTE)
        self._slices = Informer(kube, kinds.ENDPOINT_SLICE)
        self._slices.index("service", lambda item: [service_of_slice(item)])
        self._routes.index("service", services_used)
        self._routes.on_change(self._route_changed)
        self._slices.on_change(self._slice_changed)
        self._delivery = delivery
        self._renderer = Renderer(settings.gateway, str(data_dir.activator))
        self._reporter = Reporter(kube, self._routes, EventRecorder(kube, "gateway"), settings)
        self._signals = signals
        self._changed: set[Key] = set()
        self._wake = asyncio.Event()
        self._aiming = asyncio.Lock()
        self._unconfirmed = asyncio.Event()
        self._assembly = Assembly()
        self._wanted: dict[Key, Service] = {}
        self._accepted: dict[tuple[str, str], Service] = {}
        self._rejected: dict[Key, tuple[Service, str]] = {}
        self._unreported: dict[Key, tuple[int, Service]] = {}
        """Services by the aim that they first were in; Envoy has not been seen to serve it yet."""

    async def run(self) -> None:
        """Follow the API until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._routes.run())
            group.create_task(self._slices.run())
            group.create_task(self._reporter.run())
            # Before both are complete, a plan would take endpoints away from an adopted Envoy.
            await self._routes.synced.wait()
            await self._slices.synced.wait()
            self._wake.set()
            group.create_task(self._follow())
            group.create_task(self._confirm())

    async def _follow(self) -> None:
        """Plan and send at every change, whatever Envoy has yet to say of the one before.

        A burst of changes is gathered: the first goes at once, and planning takes at most a share of the time.
        """
        while True:
            await self._wake.wait()
            async with self._aiming:
                began = clock.monotonic()
                self._wake.clear()
                changed, self._changed = self._changed, set()
                for key in changed:
                    self._read(key)
                    self._choose(key)
                self._signals.knows_routes()
                self._aim()
            self._unconfirmed.set()
            await asyncio.sleep(PAUSE_SHARE * (clock.monotonic() - began))

    async def _confirm(self) -> None:
        while True:
            await self._unconfirmed.wait()
            self._unconfirmed.clear()
            try:
                await self._settle()
            except Rejected as error:
                async with self._aiming:
                    await self._find_the_bad_ones(str(error))

    def _read(self, key: Key) -> None:
        route = self._routes.get(*key)
        self._signals.know(key, labels_of(route) if route is not None else {})
        if route is None:
            self._wanted.pop(key, None)
            return
        slices = {
            backend["service"]: self._slices.by_index("service", f"{key.namespace}/{backend['service']}")
            for backend in route["spec"].get("backends") or []
        }
        self._wanted[key] = service_of(route, slices)

    def _choose(self, key: Key) -> None:
        """Have Envoy serve what is wanted of a Route, or what it accepted last if it is known to reject that."""
        service, bad = self._wanted.get(key), self._rejected.get(key)
        if bad is not None and bad[0] != service:
            del self._rejected[key]
            bad = None
        self._put(key, self._accepted.get(key) if bad is not None else service)

    def _put(self, key: Key, service: Service | None) -> None:
        self._assembly.put(key, service)
        self._unreported.pop(key, None)

    def _aim(self) -> None:
        plan = self._assembly.take()
        aim = self._delivery.aim(self._renderer.render(plan))
        for service in plan.services.values():
            if service is not None:
                self._unreported[Key(service.namespace, service.route)] = aim, service
        for (namespace, name), reason in plan.routes.items():
            if reason:
                self._reporter.refused(Key(namespace, name), reason)

    async def _settle(self) -> None:
        await self._delivery.confirm(self._report)
        self._accepted = dict(self._assembly.services)

    async def _find_the_bad_ones(self, reason: str) -> None:
        """Go back, and try what changed one at a time, so that a service that Envoy rejects holds up no other."""
        good = self._accepted
        tried = self._assembly.services
        suspects = [Key(*key) for key in sorted({*good, *tried}) if good.get(key) != tried.get(key)]
        log.error("Envoy rejected an update of %d services: %s", len(suspects), reason)
        for key in suspects:
            self._put(key, good.get(key))
        self._aim()
        await self._settle()
        for key in suspects:
            service = self._wanted.get(key)
            self._put(key, service)
            try:
                self._aim()
                await self._settle()
            except Rejected as error:
                self._put(key, good.get(key))
                if service is not None:
                    self._rejected[key] = (service, str(error))
        self._aim()
        await self._settle()
        for key, (_, said) in self._rejected.items():
            self._say_rejected(key, said)

    def _report(self) -> None:
        """Report what Envoy serves by now. What was overtaken before it was seen is never reported."""
        served = self._delivery.served
        for key in [key for key, (aim, _) in self._unreported.items() if aim <= served]:
            _, service = self._unreported.pop(key)
            self._reporter.accepted(key, service, (self._rejected.get(key) or (None, ""))[1])

    def _say_rejected(self, key: Key, reason: str) -> None:
        service = self._accepted.get(key)
        if service is None:
            self._reporter.refused(key, reason)
        else:
            self._reporter.accepted(key, service, reason)

    def _route_changed(self, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        if before is not None and after is not None and _spec(before) == _spec(after):
            return  # our own status, most of the time
        self._mark(Key.of(after or before or {}))

    def _slice_changed(self, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        for item in (before, after):
            if item is not None:
                for route in self._routes.by_index("service", service_of_slice(item)):
                    self._mark(Key.of(route))

    def _mark(self, key: Key) -> None:
        self._changed.add(key)
        if self._routes.synced.is_set() and self._slices.synced.is_set():
            self._wake.set()


def _spec(route: dict[str, object]) -> object:
    meta = route["metadata"]
    assert isinstance(meta, dict)
    return (meta.get("generation"), meta.get("uid"), route.get("spec"))


async def _adopted(process: EnvoyProcess, config: bytes, data_dir: DataDir, settings: Settings) -> bool:
    running = process.running()
    if running is None:
        return False
    if running.bootstrap == digest(config):
        log.info("adopted Envoy %d", running.pid)
        return True
    log.info("Envoy %d was started with another configuration: draining it", running.pid)
    await stop_everything(data_dir, settings)
    return False


async def _keep_alive(process: EnvoyProcess, config: bytes, settings: Settings) -> None:
    """Start Envoy again whenever it is gone; it then asks for all that it had."""
    while True:
        await asyncio.sleep(settings.gateway.envoy_check_seconds)
        if process.running() is None:
            log.error("Envoy is gone (exit code %s): starting it again", process.exit_code())
            try:
                process.start(config)
            except errors.UserError as error:
                log.error("Envoy cannot start: %s", error)  # noqa: TRY400 the message is all there is
