"""The activator's process: holds the requests of predictors at zero, reports them, and forwards them.

Envoy sends requests without a replica to one Unix socket for each backend on demand. The Autoscaler
controller reads the activator's reports and scales. If the activator is killed, only the requests that it
holds are lost.
"""

import asyncio
import datetime as dt
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import Informer, Key, Kube, Reconciler, connect_eventually
from serving.objects import Object
from serving.resources import kinds, names
from serving.router import pod_lifetime
from serving.router.activator import wake
from serving.router.activator.connector import ReplicaConnector
from serving.router.activator.demand import DemandReporter, WaitingRequests
from serving.router.activator.forwarding import BackendListener
from serving.router.activator.held_backend import STOPPING, HeldBackend, RequestObserver
from serving.router.activator.metrics import ActivatorMetrics
from serving.router.activator.request_queue import QueueTotals
from serving.router.envoy.admin import Admin
from serving.router.metrics.labels import Labels, labels_of
from serving.router.plan.policy import effective_retries
from serving.router.plan.service import (
    Endpoint,
    cluster_name,
    clusters_on_demand,
    ready_endpoints,
    services_used,
    slice_service_key,
    socket_name,
    speaks_h2c,
)
from serving.settings import GatewaySettings, Settings
from serving.system.files import open_files
from serving.system.network.sockets import SOCKET_PATH_BYTES
from serving.system.readiness import Readiness

if TYPE_CHECKING:
    from serving.router.activator.grpc_forwarding import GrpcListener

log = logging.getLogger(__name__)

ENVOY_CHECK_SECONDS = 0.2
"""Between questions to an Envoy that drains."""
IDLE_SECONDS = 0.5
"""The activator closes a connection to a replica that has been idle for one to two times this long: within a
burst none is idle for so long, and a replica that stops waits until its connections are closed."""
_LABEL = f"{names.ON_DEMAND_LABEL}=true"
_SERVICE = "service"
"""Index of Routes by the Services of their backends, and of EndpointSlices by their Service."""
_CLUSTER = "cluster"
"""Index of Routes by the clusters of their backends on demand."""
_NO_AUTOSCALER = Key("", "")


async def run(data_dir: DataDir, settings: Settings) -> None:
    """Hold and forward requests until cancelled.

    Raises:
        errors.UserError: the data directory's path is too long for sockets.
    """
    await _run(data_dir, settings, Readiness())


async def run_in_pod(
    data_dir: DataDir, settings: Settings, readiness: Readiness, stopping: asyncio.Event
) -> None:
    """Hold and forward requests until the event, and then until the Envoy of the Pod has ended.

    kubelet stops all containers of a Pod at once, but Envoy still sends requests here while it drains.

    Raises:
        errors.UserError: the data directory's path is too long for sockets.
    """

    async def leave() -> None:
        readiness.follow(lambda: "it is stopping")
        await _until_envoy_ended(data_dir, settings.gateway)

    await pod_lifetime.run(_run(data_dir, settings, readiness), stopping, leave)


async def _until_envoy_ended(data_dir: DataDir, settings: GatewaySettings) -> None:
    """Wait while an Envoy answers, at most for the time that it may take to drain.

    Its process may not be seen from this container.
    """
    deadline = clock.monotonic() + settings.leave_seconds + settings.drain_seconds
    async with Admin(data_dir.admin_socket) as admin:
        with suppress(errors.Unavailable):
            while clock.monotonic() < deadline:
                await admin.ready()
                await asyncio.sleep(ENVOY_CHECK_SECONDS)


async def _run(data_dir: DataDir, settings: Settings, readiness: Readiness) -> None:
    folder = data_dir.activator
    if len(os.fsencode(folder / socket_name(""))) > SOCKET_PATH_BYTES:
        raise errors.UserError(f"{folder}: too long for a Unix socket; choose a shorter --data-dir")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    open_files.set_limit()  # a forwarded request has two: the connections to Envoy and to the replica
    async with (
        connections(settings, data_dir.pod_sockets) as session,
        await connect_eventually(data_dir.kubeconfig, component="activator") as kube,
    ):
        activator = Activator(kube, session, data_dir, settings)
        readiness.follow(activator.obstacle)
        record, port = data_dir.metrics("activator"), settings.activator.metrics_port
        async with metrics.served({metrics.PATH: activator.page}, record, settings.pages.host, port) as page:
            log.info("metrics at %s", page.url)
            await activator.run()


def connections(settings: Settings, sockets: Path) -> aiohttp.ClientSession:
    """Return the client session for requests to replicas, of which some have Unix sockets in `sockets`."""
    return aiohttp.ClientSession(
        # No limit of connections (0): the request queues bound the requests.
        connector=ReplicaConnector(sockets, limit=0, keepalive_timeout=IDLE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.gateway.connect_timeout_seconds),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


@dataclass
class _OnDemandBackend:
    """One backend on demand, as its Route describes it."""

    listener: "BackendListener | GrpcListener"
    labels: Labels
    h2c: bool
    """Never changes: the Service of the backend has a revision's name, with a hash of the Pod template."""
    arm: str = ""
    """Empty until `_update_backend`."""
    autoscaler: Key = _NO_AUTOSCALER
    """Its name is empty if the Route names none."""
    pods: dict[Endpoint, str] = field(default_factory=dict)
    """Names of the Pods of its ready replicas."""

    @property
    def backend(self) -> HeldBackend:
        return self.listener.backend


class Activator:
    """All backends on demand."""

    def __init__(
        self, kube: Kube, session: aiohttp.ClientSession, data_dir: DataDir, settings: Settings
    ) -> None:
        self._kube = kube
        self._session = session
        self._folder = data_dir.activator
        self._pod_sockets = data_dir.pod_sockets
        self._settings = settings.activator
        self._connect_timeout_seconds = settings.gateway.connect_timeout_seconds
        # One Route at a time: each update opens and closes listeners.
        self._updates = Reconciler("activator", self._update_route, replace(settings.controllers, workers=1))
        namespace = settings.controllers.watch_namespace or None
        self._routes = Informer(kube, kinds.ROUTE, namespace=namespace, labels=_LABEL)
        self._slices = Informer(kube, kinds.ENDPOINT_SLICE, namespace=namespace, labels=_LABEL)
        self._slices.index(_SERVICE, lambda item: [slice_service_key(item)])
        self._routes.index(_SERVICE, services_used)
        self._routes.index(_CLUSTER, clusters_on_demand)
        self._routes.on_change(self._route_changed)
        self._slices.on_change(self._slice_changed)
        self._demand = DemandReporter(kube, self._waiting, settings)
        self._totals = QueueTotals()
        self._metrics = ActivatorMetrics(
            settings.gateway.name,
            lambda: ((entry.labels, len(entry.backend.queue)) for entry in self._entries.values()),
        )
        self._observer = RequestObserver(
            queue_changed=self._queue_changed,
            woken=self._woken,
            answered=self._metrics.answered,
            refused=self._metrics.refused,
            held=self._held,
            released=self._released,
        )
        self._of_route: dict[Key, dict[str, _OnDemandBackend]] = {}
        """The backends on demand that each Route owns, by the name of their cluster."""
        self._holders: dict[str, Key] = {}
        """By cluster: the Route that has it in `_of_route`."""
        self._entries: dict[HeldBackend, _OnDemandBackend] = {}
        """Includes removed backends that still answer requests."""
        self._scaled_by: dict[Key, set[HeldBackend]] = {}
        """Backends by Autoscaler."""
        self._last_wakes: dict[Key, dict[str, Any]] = {}
        """By Autoscaler, as `wake.report` returns them."""
        self._tasks = asyncio.TaskGroup()
        self._is_stopping = False
        """Requests in flight are finished, but `_tasks` takes no more tasks."""

    async def page(self) -> str:
        """Return the page of metrics."""
        return self._metrics.page()

    def obstacle(self) -> str:
        """Return why the activator is not ready; empty if it knows the backends on demand."""
        is_synced = self._routes.synced.is_set() and self._slices.synced.is_set()
        return "" if is_synced else "Routes and EndpointSlices are not listed yet"

    async def run(self) -> None:
        """Follow the API until cancelled; then refuse waiting requests, remove their reports, and finish the
        requests in flight.
        """
        try:
            async with self._tasks as group:
                for work in (self._routes, self._slices, self._demand):
                    group.create_task(work.run())
                # The report of a first request must not wait for a new connection to the API.
                group.create_task(self._kube.stay_connected(lambda: bool(self._of_route)))
                try:
                    await self._updates.run(self._routes, self._slices)
                finally:
                    self._is_stopping = True
        finally:
            for backend in self._entries:
                backend.end(None, STOPPING)
            closed = (entry.listener.close() for entry in self._entries.values())
            await asyncio.gather(self._demand.withdraw(), *closed)

    async def _update_route(self, key: Key) -> None:
        """Listen for the backends on demand that one Route owns, and update their replicas.

        Raises:
            errors.Temporary: the requests of a backend cannot be held; the others are updated.
        """
        route = self._routes.get(*key)
        spec = route["spec"] if route is not None else {}
        backends = spec.get("backends") or []
        by_cluster = {cluster_name(key.namespace, b): b for b in backends if b.get("onDemand")}
        on_demand = {cluster: b for cluster, b in by_cluster.items() if self._owner(cluster) == key}
        labels = labels_of(route) if route is not None else {}
        entries = self._of_route.setdefault(key, {})
        problems = []
        for cluster in on_demand.keys() - entries.keys():
            if cluster in self._holders:
                self._hand_over(cluster, key)
                continue
            try:
                await self._open(key, cluster, labels[cluster], h2c=speaks_h2c(on_demand[cluster]))
            except OSError as error:  # a failure of one backend must not stop the others
                problems.append(f"{cluster}: its requests cannot be held: {error}")
        for cluster, entry in list(entries.items()):
            if (backend := on_demand.get(cluster)) is not None:
                entry.backend.set_retries(effective_retries(spec, backend))
                self._label(entry, labels[cluster])
                self._update_backend(entry, key.namespace, backend)
        for cluster in entries.keys() - on_demand.keys():
            if (owner := self._owner(cluster)) is not None:
                self._hand_over(cluster, owner)
                self._updates.add(owner)
                continue
            entry = entries.pop(cluster)
            del self._holders[cluster]
            entry.backend.end(_successor(entry, entries.values()))
            self._tasks.create_task(self._close(entry))
        if not entries:
            del self._of_route[key]
        if problems:
            raise errors.Temporary("NoListener", "; ".join(problems))

    def _owner(self, cluster: str) -> Key | None:
        """Return the oldest Route with a cluster, which gives Envoy's its configuration; None without any."""
        routes = self._routes.by_index(_CLUSTER, cluster)
        oldest = min(routes, key=lambda r: (r["metadata"]["creationTimestamp"], Key.of(r)), default=None)
        return Key.of(oldest) if oldest is not None else None

    def _hand_over(self, cluster: str, owner: Key) -> None:
        """Give a cluster's backend to another Route, with the requests that it holds."""
        entry = self._of_route[self._holders[cluster]].pop(cluster)
        self._of_route.setdefault(owner, {})[cluster] = entry
        self._holders[cluster] = owner

    async def _open(self, key: Key, cluster: str, labels: Labels, *, h2c: bool) -> None:
        backend = HeldBackend(cluster, self._settings, self._totals, self._observer)
        listener = self._listener(backend, h2c=h2c)
        await listener.open()
        entry = self._entries[backend] = _OnDemandBackend(listener, labels, h2c)
        self._of_route[key][cluster], self._holders[cluster] = entry, key

    def _listener(self, backend: HeldBackend, *, h2c: bool) -> "BackendListener | GrpcListener":
        path = self._folder / socket_name(backend.name)
        if not h2c:
            return BackendListener(backend, path, self._settings, self._session)
        from serving.router.activator.grpc_forwarding import GrpcListener  # noqa: PLC0415 10 MB, seldom needed

        return GrpcListener(
            backend, path, sockets=self._pod_sockets, connect_seconds=self._connect_timeout_seconds
        )

    def _update_backend(self, entry: _OnDemandBackend, namespace: str, backend: Object) -> None:
        slices = self._slices.by_index(_SERVICE, f"{namespace}/{backend['service']}")
        entry.arm, autoscaler = backend["arm"], Key(namespace, backend.get("autoscaler") or "")
        if autoscaler != entry.autoscaler:
            self._detach_autoscaler(entry)
            entry.autoscaler = autoscaler
            self._scaled_by.setdefault(autoscaler, set()).add(entry.backend)
            self._demand.changed(autoscaler)  # the report of a killed activator may be outdated
        entry.pods = ready_endpoints(backend, slices)
        entry.backend.set_replicas(entry.pods)

    async def _close(self, entry: _OnDemandBackend) -> None:
        await entry.listener.close()
        del self._entries[entry.backend]
        self._forget_unused(entry.labels)
        self._detach_autoscaler(entry)

    def _label(self, entry: _OnDemandBackend, labels: Labels) -> None:
        if labels != entry.labels:
            before, entry.labels = entry.labels, labels
            self._forget_unused(before)

    def _forget_unused(self, labels: Labels) -> None:
        if labels not in {item.labels for item in self._entries.values()}:
            self._metrics.forget(labels)

    def _detach_autoscaler(self, entry: _OnDemandBackend) -> None:
        """Detach a backend from its Autoscaler, and forget an Autoscaler without backends."""
        backends = self._scaled_by.get(entry.autoscaler, set())
        backends.discard(entry.backend)
        if not backends:
            self._scaled_by.pop(entry.autoscaler, None)
            self._last_wakes.pop(entry.autoscaler, None)
        self._demand.changed(entry.autoscaler)

    def _queue_changed(self, backend: HeldBackend) -> None:
        if (entry := self._entries.get(backend)) is not None:
            self._demand.changed(entry.autoscaler)

    def _held(self, backend: HeldBackend) -> None:
        if (entry := self._entries.get(backend)) is not None:
            self._metrics.held(entry.labels)

    def _released(self, backend: HeldBackend, seconds: float) -> None:
        if (entry := self._entries.get(backend)) is not None:
            self._metrics.released(entry.labels, seconds)

    def _waiting(self, autoscaler: Key) -> WaitingRequests:
        backends = self._scaled_by.get(autoscaler, ())
        return WaitingRequests(
            sum(len(backend.queue) for backend in backends),
            max((backend.last_request for backend in backends), default=0.0),
            self._last_wakes.get(autoscaler),
        )

    def _woken(self, backend: HeldBackend, replica: Endpoint, accepted: float) -> None:
        if self._is_stopping:
            return  # the reports, which have the last wakes, are removed
        released = clock.now().timestamp()
        self._tasks.create_task(self._record_wake(self._entries[backend], replica, accepted, released))

    async def _record_wake(
        self, entry: _OnDemandBackend, replica: Endpoint, accepted: float, released: float
    ) -> None:
        """Record the phases of a wake; the replica's Pod has the node's report of its start.

        Args:
            entry: the backend that woke.
            replica: gets the first held request.
            accepted: arrival of that request, in Unix seconds.
            released: when the request went to the replica, in Unix seconds.
        """
        name, namespace = entry.pods.get(replica, ""), entry.autoscaler.namespace
        pod = None
        try:
            pod = await self._kube.get(kinds.POD, namespace, name) if name else None
        except (errors.ApiError, errors.Unavailable) as error:
            log.info("Pod %s/%s: %s", namespace, name, error)
        phases = wake.phases(accepted, released, pod)
        self._metrics.woken(namespace, entry.autoscaler.name, phases)
        at = clock.rfc3339_micro(dt.datetime.fromtimestamp(accepted, dt.UTC))
        if entry.autoscaler in self._scaled_by:
            self._last_wakes[entry.autoscaler] = wake.report(name, at, phases)
            self._demand.changed(entry.autoscaler)

    def _route_changed(self, before: Object | None, after: Object | None) -> None:
        """Update a Route, and those that share a cluster with it: their owner may be another one now."""
        for route in (before, after):
            if route is not None:
                self._updates.add(Key.of(route))
                for cluster in clusters_on_demand(route):
                    for other in self._routes.by_index(_CLUSTER, cluster):
                        self._updates.add(Key.of(other))

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for item in (before, after):
            if item is not None:
                for route in self._routes.by_index(_SERVICE, slice_service_key(item)):
                    self._updates.add(Key.of(route))


def _successor(removed: _OnDemandBackend, remaining: Iterable[_OnDemandBackend]) -> HeldBackend | None:
    """Return the backend of the same arm and protocol that takes the waiting requests of a removed one.

    A backend with replicas is preferred.
    """
    candidates = [
        entry.backend for entry in remaining if (entry.arm, entry.h2c) == (removed.arm, removed.h2c)
    ]
    return max(candidates, key=lambda backend: bool(backend.queue.replicas), default=None)
