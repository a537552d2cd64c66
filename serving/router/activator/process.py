"""The activator's process: holds the requests of predictors at zero, says that they wait, and sends them on.

Envoy sends it what finds no replica, on one Unix socket for each backend that may be at zero. It scales nothing: the
Autoscaler controller reads what it reports. What it holds is lost when it is killed, and nothing else is.
"""

import asyncio
import datetime as dt
import logging
import os
import resource
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import Informer, Key, Kube, connect_eventually
from serving.objects import Object
from serving.resources import kinds, names
from serving.router.activator import wake
from serving.router.activator.demand import Demand, Waiting
from serving.router.activator.forwarding import STOPPING, Backend, Listener, Watcher
from serving.router.activator.metrics import ActivatorMetrics
from serving.router.activator.request_queue import Total
from serving.router.metrics.labels import Labels, labels_of
from serving.router.plan.service import (
    Cluster,
    Endpoint,
    cluster_of,
    replicas_of,
    service_of_slice,
    services_used,
)
from serving.settings import Settings
from serving.system.sockets import SOCKET_PATH_BYTES

log = logging.getLogger(__name__)

_LABEL = f"{names.ON_DEMAND_LABEL}=true"
_SERVICE = "service"


async def run(data_dir: DataDir, settings: Settings) -> None:
    """Hold and send on until cancelled.

    Raises:
        errors.UserError: the data directory's path is too long for sockets.
    """
    folder = data_dir.activator
    if len(os.fsencode(folder / Cluster("", ()).socket)) > SOCKET_PATH_BYTES:
        raise errors.UserError(f"{folder}: too long for a Unix socket; choose a shorter --data-dir")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _allow_many_files()
    async with (
        connections(settings) as session,
        await connect_eventually(data_dir.kubeconfig, component="activator") as kube,
    ):
        activator = Activator(kube, session, data_dir, settings)
        note = data_dir.metrics("activator")
        async with metrics.served(activator.page, note, settings.activator.metrics_port) as port:
            log.info("metrics at http://%s:%d/metrics", metrics.HOST, port)
            await activator.run()


def connections(settings: Settings) -> aiohttp.ClientSession:
    """Return what requests are sent to replicas with."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=settings.activator.idle_seconds),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.gateway.connect_timeout_seconds),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _allow_many_files() -> None:
    """A request that is held is two open files; the soft limit of 1,024 is for programs that use select(2)."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass
class _Place:
    """One backend that may be at zero, as its Route has it."""

    listener: Listener
    arm: str
    autoscaler: Key
    labels: Labels
    pods: dict[Endpoint, str] = field(default_factory=dict)
    """Names of its replicas."""

    @property
    def backend(self) -> Backend:
        return self.listener.backend


class Activator:
    """All backends that may be at zero."""

    def __init__(
        self, kube: Kube, session: aiohttp.ClientSession, data_dir: DataDir, settings: Settings
    ) -> None:
        self._kube = kube
        self._session = session
        self._folder = data_dir.activator
        self._settings = settings.activator
        self._routes = Informer(kube, kinds.ROUTE, labels=_LABEL)
        self._slices = Informer(kube, kinds.ENDPOINT_SLICE, labels=_LABEL)
        self._slices.index(_SERVICE, lambda item: [service_of_slice(item)])
        self._routes.index(_SERVICE, services_used)
        self._routes.on_change(lambda before, after: self._changes.put_nowait(Key.of(after or before or {})))
        self._slices.on_change(self._slice_changed)
        self._demand = Demand(kube, self._waiting, settings.activator, settings.controllers)
        self._total = Total()
        self._metrics = ActivatorMetrics(
            lambda: ((place.labels, len(place.backend.line)) for place in self._of.values())
        )
        self._watcher = Watcher(
            self._changed, self._woken, self._metrics.waited, self._metrics.refused,
            self._held, self._released,
        )  # fmt: skip
        self._places: dict[Key, dict[Cluster, _Place]] = {}
        """By Route; a cluster stands here without endpoints."""
        self._of: dict[Backend, _Place] = {}
        """With those that have gone and are still answering."""
        self._scaled_by: dict[Key, set[Backend]] = {}
        self._wakes: dict[Key, dict[str, Any]] = {}
        """The last one of each Autoscaler."""
        self._changes: asyncio.Queue[Key] = asyncio.Queue()
        self._tasks = asyncio.TaskGroup()

    async def page(self) -> str:
        """Return the page of metrics."""
        return self._metrics.page()

    async def run(self) -> None:
        """Follow the API until cancelled; then what waits is refused, and what is being answered is finished."""
        try:
            async with self._tasks as group:
                for work in (self._routes, self._slices, self._demand):
                    group.create_task(work.run())
                group.create_task(self._kube.stay_connected(lambda: bool(self._places)))
                await self._routes.synced.wait()
                await self._slices.synced.wait()
                while True:
                    await self._follow(await self._changes.get())
        finally:
            for backend in self._of:
                backend.end(None, STOPPING)
            await asyncio.gather(*(place.listener.close() for place in self._of.values()))

    async def _follow(self, key: Key) -> None:
        """Have the sockets of one Route's backends, and know their replicas."""
        route = self._routes.get(*key)
        backends = (route["spec"].get("backends") or []) if route is not None else []
        found = {cluster_of(key.namespace, b, ()): b for b in backends if b.get("onDemand")}
        labels = labels_of(route) if route is not None else {}
        places = self._places.setdefault(key, {})
        for cluster in found.keys() - places.keys():
            await self._open(places, cluster, labels[cluster.name])
        for cluster, place in list(places.items()):
            if (backend := found.get(cluster)) is not None:
                self._update(place, key.namespace, backend)
        for cluster in places.keys() - found.keys():
            place = places.pop(cluster)
            heirs = [other.backend for other in places.values() if other.arm == place.arm]
            heir = max(heirs, key=lambda backend: bool(backend.line.replicas), default=None)
            place.backend.end(heir)
            self._tasks.create_task(self._close(place))
        if not places:
            del self._places[key]

    async def _open(self, places: dict[Cluster, _Place], cluster: Cluster, labels: Labels) -> None:
        backend = Backend(cluster.name, self._settings, self._total, self._session, self._watcher)
        listener = Listener(backend, self._folder / cluster.socket, self._settings)
        try:
            await listener.open()
        except OSError:  # what one backend lacks must not stop the others
            log.exception("%s: its requests cannot be held", cluster.name)
            return
        places[cluster] = self._of[backend] = _Place(listener, "", Key("", ""), labels)

    def _update(self, place: _Place, namespace: str, backend: Object) -> None:
        slices = self._slices.by_index(_SERVICE, f"{namespace}/{backend['service']}")
        place.arm, autoscaler = backend["arm"], Key(namespace, backend.get("autoscaler") or "")
        if autoscaler != place.autoscaler:
            self._scaled_no_more(place)
            place.autoscaler = autoscaler
            self._scaled_by.setdefault(autoscaler, set()).add(place.backend)
            self._demand.changed(autoscaler)  # what a killed activator said of it may be true no more
        place.pods = replicas_of(backend, slices)
        place.backend.aim(place.pods)

    async def _close(self, place: _Place) -> None:
        await place.listener.close()
        del self._of[place.backend]
        if place.labels not in {other.labels for other in self._of.values()}:
            self._metrics.forget(place.labels)
        self._scaled_no_more(place)

    def _scaled_no_more(self, place: _Place) -> None:
        """Its Autoscaler has nothing to do with this backend from now on; one that has no other is forgotten."""
        backends = self._scaled_by.get(place.autoscaler, set())
        backends.discard(place.backend)
        if not backends:
            self._scaled_by.pop(place.autoscaler, None)
            self._wakes.pop(place.autoscaler, None)
        self._demand.changed(place.autoscaler)

    def _changed(self, backend: Backend) -> None:
        if (place := self._of.get(backend)) is not None:
            self._demand.changed(place.autoscaler)

    def _held(self, backend: Backend) -> None:
        if (place := self._of.get(backend)) is not None:
            self._metrics.held(place.labels)

    def _released(self, backend: Backend, seconds: float) -> None:
        if (place := self._of.get(backend)) is not None:
            self._metrics.released(place.labels, seconds)

    def _waiting(self, autoscaler: Key) -> Waiting:
        """Return what is so now."""
        backends = self._scaled_by.get(autoscaler, ())
        return Waiting(
            sum(len(backend.line) for backend in backends),
            max((backend.last_request for backend in backends), default=0.0),
            self._wakes.get(autoscaler),
        )

    def _woken(self, backend: Backend, replica: Endpoint, since: float) -> None:
        self._tasks.create_task(self._trace(self._of[backend], replica, since, clock.now().timestamp()))

    async def _trace(self, place: _Place, replica: Endpoint, accepted: float, released: float) -> None:
        """Say where the time of a wake went."""
        name, namespace = place.pods.get(replica, ""), place.autoscaler.namespace
        pod = None
        try:
            pod = await self._kube.get(kinds.POD, namespace, name) if name else None
        except (errors.ApiError, errors.Unavailable) as error:
            log.info("Pod %s/%s: %s", namespace, name, error)
        found = wake.phases(accepted, released, pod)
        self._metrics.woken(namespace, place.autoscaler.name, found)
        at = clock.rfc3339_micro(dt.datetime.fromtimestamp(accepted, dt.UTC))
        if place.autoscaler in self._scaled_by:
            self._wakes[place.autoscaler] = wake.report(name, at, found)
            self._demand.changed(place.autoscaler)

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for item in (before, after):
            for route in self._routes.by_index(_SERVICE, service_of_slice(item)) if item is not None else ():
                self._changes.put_nowait(Key.of(route))
