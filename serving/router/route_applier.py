"""Applies the Routes to Envoy: plans on changes, sends the plan, and reports the accepted version.

This module decides no weights, and starts and ends no process.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from serving import clock
from serving.data_dir import DataDir
from serving.kube import EventRecorder, Informer, Key, Kube
from serving.objects import Object
from serving.resources import kinds
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.render import Renderer
from serving.router.metrics.collector import StatisticsCollector
from serving.router.metrics.labels import labels_of
from serving.router.plan.route_table import RouteKey, RouteTable
from serving.router.plan.service import (
    GatewayService,
    gateway_service,
    services_used,
    slice_service_key,
)
from serving.router.prober import CandidateProbes, Prober
from serving.router.route_status import RouteStatusWriter
from serving.router.xds.server import DeltaXdsServer, Rejected
from serving.router.xds.session import TYPE_NAMES
from serving.settings import Settings

log = logging.getLogger(__name__)

PLANNING_PAUSE_SHARE = 2.0
"""Pause after planning, in multiples of the planning's time: planning takes at most a third of a core."""
_BY_KUBE_SERVICE = "service"
"""Index of Routes by the Services of their backends, and of EndpointSlices by their Service."""


class _RejectedService(NamedTuple):
    service: GatewayService
    message: str
    """Envoy's reason."""


class _SentService(NamedTuple):
    version: int
    """The first target version that has the service."""
    service: GatewayService


class RouteApplier:
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
        namespace = settings.controllers.watch_namespace or None
        self._routes = Informer(kube, kinds.ROUTE, namespace=namespace)
        self._slices = Informer(kube, kinds.ENDPOINT_SLICE, namespace=namespace)
        self._slices.index(_BY_KUBE_SERVICE, lambda item: [slice_service_key(item)])
        self._routes.index(_BY_KUBE_SERVICE, services_used)
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
        """Routes to plan again."""
        self._has_changes = asyncio.Event()
        """Set if Routes are to be planned and both caches are complete."""
        self._target_lock = asyncio.Lock()
        """Held while a target is planned and set, and while a rejected change is isolated."""
        self._has_target = asyncio.Event()
        """Set if Envoy's answer to a target is awaited."""
        self._has_acknowledged = False
        """Whether Envoy has acknowledged a plan."""
        self._envoy_problem = ""
        self._reporting: asyncio.Task[None] | None = None
        self._table = RouteTable()
        self._desired: dict[Key, GatewayService] = {}
        """The service of each Route as its spec and EndpointSlices ask for it."""
        self._accepted: dict[RouteKey, GatewayService] = {}
        """The services of the last plan that Envoy has acknowledged as a whole. A `Key` is a `RouteKey`."""
        self._rejected: dict[Key, _RejectedService] = {}
        """Services that Envoy is known to reject; their Routes keep the accepted service."""
        self._unreported: dict[Key, _SentService] = {}
        """Services that Envoy has not acknowledged yet."""

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
        return self._envoy_problem or ("" if self._has_acknowledged else "Envoy has acknowledged no plan yet")

    async def leave(self) -> None:
        """Remove this gateway's Lease, and report nothing any more; Envoy still gets every change."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait([self._reporting])
        await self._status.remove_lease()

    async def withdraw(self) -> None:
        """Remove this gateway's entries in the status of Routes, after `leave`."""
        await self._status.withdraw()

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
                    self._plan(key)
                self._collector.mark_routes_known()
                self._set_target()
            self._has_target.set()
            await asyncio.sleep(PLANNING_PAUSE_SHARE * (clock.monotonic() - began))

    async def _follow_answers(self) -> None:
        """Wait for Envoy's answer to each target, and report it; after a rejection, isolate the reason."""
        while True:
            await self._has_target.wait()
            self._has_target.clear()
            try:
                await self._wait_accepted()
            except Rejected as error:
                async with self._target_lock:
                    await self._isolate_rejected(str(error))

    def _read(self, key: Key) -> None:
        """Read a Route and its EndpointSlices from the caches: its metric labels and its desired service."""
        route = self._routes.get(*key)
        if route is None:
            self._collector.set_labels(key, {})
            self._desired.pop(key, None)
            return
        slices = {
            backend["service"]: self._slices.by_index(
                _BY_KUBE_SERVICE, f"{key.namespace}/{backend['service']}"
            )
            for backend in route["spec"].get("backends") or []
        }
        service = self._desired[key] = gateway_service(route, slices)
        self._collector.set_labels(key, labels_of(route), with_tokens=service.counts_tokens)

    def _plan(self, key: Key) -> None:
        """Plan the desired service of a Route; one that Envoy is known to reject is not tried again."""
        service, rejected = self._desired.get(key), self._rejected.get(key)
        if rejected is not None:
            if rejected.service == service:
                return
            del self._rejected[key]
        self._put(key, service)

    def _put(self, key: Key, service: GatewayService | None) -> None:
        """Put a Route's service into the table; None ends the Route's probes and reports."""
        # An equal service is not sent again: Envoy's answer to its first target is still to be reported.
        if service is None or service != self._table.services.get(key):
            self._unreported.pop(key, None)
        self._table.put(key, service)
        if service is None:
            self._probes.follow(key, None)
            self._status.forget(key)

    def _set_target(self) -> None:
        """Make the table the xDS server's target, and report the Routes that the table does not serve."""
        changes = self._table.take_changes()
        version = self._server.set_target(self._renderer.render(changes))
        for service in changes.services.values():
            if service is not None:
                self._unreported[Key(service.namespace, service.route)] = _SentService(version, service)
        for (namespace, name), reason in changes.routes.items():
            if reason:
                self._unreported.pop(Key(namespace, name), None)
                self._probes.follow(Key(namespace, name), None)
                self._status.refused(Key(namespace, name), reason)

    async def _wait_accepted(self) -> None:
        """Wait until Envoy has acknowledged the whole target, and report each acknowledged service.

        Raises:
            Rejected: with Envoy's message.
        """
        await self._server.wait_acknowledged(self._report_acknowledged)
        self._has_acknowledged = True
        self._accepted = dict(self._table.services)

    async def _isolate_rejected(self, reason: str) -> None:
        """Return to the accepted plan and try one change at a time, so that only the rejected ones fail.

        If Envoy rejects even the accepted plan, the changes that were not tried yet wait for a next change.
        """
        accepted = self._accepted
        tried = self._table.services
        changed = [key for key in {*accepted, *tried} if accepted.get(key) != tried.get(key)]
        suspects = [Key(*key) for key in sorted(changed, reverse=True)]  # the first by name is tried first
        log.error("Envoy rejected an update of %d services: %s", len(suspects), reason)
        for key in suspects:
            self._put(key, accepted.get(key))
        failure = await self._resend()
        while suspects and not failure:
            key = suspects.pop()
            service = self._desired.get(key)
            self._put(key, service)
            if rejection := await self._send_target():
                if service is not None:
                    self._rejected[key] = _RejectedService(service, rejection)
                self._put(key, accepted.get(key))
                failure = await self._resend()
        for key, rejected in self._rejected.items():
            self._report_rejected(key, rejected.message)
        for key in suspects:  # those that were not tried, after a failure
            if key in self._desired:
                self._report_rejected(key, failure)
        self._changed.update(suspects)  # without `_has_changes`: the next change of any Route tries them

    async def _send_target(self) -> str:
        """Send the target; return Envoy's message if it rejects a part of it, or else an empty string."""
        try:
            self._set_target()
            await self._wait_accepted()
        except Rejected as error:
            return str(error)
        return ""

    async def _resend(self) -> str:
        """Send the plan that Envoy had accepted; return Envoy's message if it rejects even this plan."""
        # Of each type, one response of an earlier target may have been in flight, and be rejected now.
        for _ in TYPE_NAMES:
            if not (rejection := await self._send_target()):
                return ""
        log.error("Envoy rejects the plan that it had accepted: %s", rejection)
        return rejection

    def _report_acknowledged(self) -> None:
        """Report the services that Envoy has acknowledged, except those replaced before."""
        acknowledged = self._server.acknowledged_version
        reached = [key for key, sent in self._unreported.items() if sent.version <= acknowledged]
        for key in reached:
            service = self._unreported.pop(key).service
            rejected = self._rejected.get(key)
            message = rejected.message if rejected is not None else ""
            self._status.accepted(key, service, message, self._probes.follow(key, service))

    def _report_rejected(self, key: Key, reason: str) -> None:
        """Report why Envoy rejected a Route's service, and the service that Envoy has instead, if any."""
        service = self._accepted.get(key)
        if service is None:
            self._status.refused(key, reason)
        else:
            self._status.accepted(key, service, reason, self._probes.follow(key, service))

    def _route_changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None and _spec(before) == _spec(after):
            return  # most often, this gateway has written its status
        self._mark_changed(Key.of(after or before or {}))

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for item in (before, after):
            if item is not None:
                for route in self._routes.by_index(_BY_KUBE_SERVICE, slice_service_key(item)):
                    self._mark_changed(Key.of(route))

    def _mark_changed(self, key: Key) -> None:
        self._changed.add(key)
        if self._routes.synced.is_set() and self._slices.synced.is_set():
            self._has_changes.set()


def _spec(route: Object) -> object:
    """Return the parts of a Route on which its service depends, for comparison."""
    meta = route["metadata"]
    return (meta.get("generation"), meta.get("uid"), route.get("spec"))
