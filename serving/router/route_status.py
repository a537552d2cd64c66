"""Writes this gateway's entry in the status of each Route, its Lease, and Events."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from serving import clock, errors
from serving.kube import EventRecorder, Informer, Key, Kube, Reconciler, Result
from serving.kube.status_withdrawal import withdraw
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.leases import NOT_SERVING_ANNOTATION
from serving.router.plan.service import NOTHING_PROVEN, GatewayService
from serving.settings import Settings
from serving.system.network import addresses

log = logging.getLogger(__name__)

LEASE_RETRY_SECONDS = 1.0
"""Before another attempt to renew the Lease: it must not expire because the API was away for a moment."""
LEASE_REMOVAL_SECONDS = 2.0
"""Longest wait for the removal of the Lease, which would expire soon anyway."""

_NO_RESULTS: Mapping[str, str] = MappingProxyType({})


class RouteStatusWriter:
    """Keeps this gateway's status entry of each Route, and writes it if it differs from the stored one."""

    def __init__(
        self,
        kube: Kube,
        routes: Informer,
        recorder: EventRecorder,
        settings: Settings,
        pages: Callable[[], Mapping[str, str]],
    ) -> None:
        """Write nothing yet.

        Args:
            kube: the API.
            routes: the cache of all Routes.
            recorder: of Events.
            settings: the name and the address of this gateway, and the Lease.
            pages: returns the annotations of the Lease that name metrics pages.
        """
        self._pages = pages
        self._kube = kube
        self._routes = routes
        self._recorder = recorder
        self._settings = settings.gateway
        self._gather_seconds = settings.controllers.gather_seconds
        self._settle_seconds = settings.controllers.status_settle_seconds
        self._lease_namespace = settings.controllers.lease_namespace
        self._name = settings.gateway.name
        self._manager = f"{names.FIELD_MANAGER_PREFIX}gateway-{self._name}"
        own = addresses.authority(settings.gateway.host, settings.gateway.port)
        self._address = settings.gateway.address or own
        self._entries: dict[Key, dict[str, Any]] = {}
        """The entry that each Route's `status.gateways` should have."""
        self._problem = ""
        self._renew = asyncio.Event()
        self._writer = Reconciler("route status", self._write, settings.controllers)
        routes.on_change(self._route_changed)

    def accepted(
        self, key: Key, service: GatewayService, message: str, probed: Mapping[str, str] = _NO_RESULTS
    ) -> None:
        """Report that Envoy serves a service.

        Args:
            key: the Route.
            service: the service that Envoy has acknowledged.
            message: why Envoy rejected a newer service of the Route; empty if it rejected none.
            probed: results of probes, by backend: the failure, empty for a success.
        """
        self._put(
            key,
            {
                "name": self._name,
                "acceptedGeneration": service.generation,
                "address": self._address,
                "weights": [{"arm": arm, "percent": percent} for arm, percent in service.arm_percentages],
                **_probes(probed),
                "message": message or service.unavailable,
            },
            delay=self._delay(service, probed),
        )

    def probed(self, key: Key, results: Mapping[str, str]) -> None:
        """Report results of probes of a Route that Envoy serves; as in `accepted`."""
        if key in self._entries:
            self._put(key, {**self._entries[key], **_probes(results)}, delay=self._gather_seconds)

    def refused(self, key: Key, reason: str) -> None:
        """Report that Envoy serves nothing of a Route, and why."""
        self._put(
            key,
            {
                "name": self._name,
                "acceptedGeneration": 0,
                "address": self._address,
                "weights": [],
                "message": reason,
            },
        )

    def forget(self, key: Key) -> None:
        """The gateway plans nothing for this Route any more: another Route of its name is reported anew."""
        self._entries.pop(key, None)

    def set_problem(self, problem: str) -> None:
        """Report with the Lease why this gateway serves nothing; empty if it serves."""
        self._problem = problem
        self._renew.set()

    async def run(self) -> None:
        """Write statuses and renew the Lease until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writer.run(self._routes))
            group.create_task(self._renew_lease())

    async def remove_lease(self) -> None:
        """Let this gateway count as gone, rather than as alive until its Lease expires; after `run`."""
        try:
            async with asyncio.timeout(LEASE_REMOVAL_SECONDS):
                await self._kube.delete(kinds.LEASE, self._lease_namespace, self._manager)
        except (errors.ApiError, errors.Unavailable, TimeoutError) as error:
            log.info("the Lease is not removed, and expires: %s", error or "no answer")

    async def withdraw(self) -> None:
        """Remove this gateway's entries, which count no more without the Lease; after `run`."""
        keys = [Key.of(route) for route in self._routes if self._stored(route)]
        await withdraw(self._kube, kinds.ROUTE, keys, self._manager)

    def _delay(self, service: GatewayService, probed: Mapping[str, str]) -> float:
        """Return the seconds for which the entry may wait, as results of probes will change it again."""
        if any(candidate.has_replica and candidate.backend not in probed for candidate in service.candidates):
            return self._gather_seconds
        # Nothing follows from this acceptance alone: the first replica of the service is still to come.
        is_starting = service.unavailable == NOTHING_PROVEN and not probed and bool(service.candidates)
        return self._settle_seconds if is_starting else 0.0

    def _put(self, key: Key, entry: dict[str, Any], *, delay: float = 0.0) -> None:
        """Keep the entry, and write it after the delay in seconds or together with an earlier write."""
        if self._entries.get(key) == entry:
            return
        self._entries[key] = entry
        if delay:
            self._writer.add_after(key, delay)
        else:
            self._writer.add(key)

    def _route_changed(self, before: Object | None, after: Object | None) -> None:
        """Write the entry again if another writer has changed it, or if the Route was created again."""
        if after is None:
            return
        entry = self._entries.get(Key.of(after))
        if entry is None:
            return
        # A Route that was deleted and created again may have an equal service, which is not reported again.
        is_new = before is None or before["metadata"]["uid"] != after["metadata"]["uid"]
        # If the stored entry was not `entry` before, this gateway has just written `entry`, or is about to.
        was_overwritten = self._stored(before or {}) == entry and self._stored(after) != entry
        if is_new or was_overwritten:
            self._writer.add(Key.of(after))

    async def _write(self, key: Key) -> Result | None:
        """Write the entry of a Route if the stored one differs, and an Event if the message is new."""
        entry, route = self._entries.get(key), self._routes.get(*key)
        if entry is None or route is None:
            self._entries.pop(key, None)
            return None
        stored = self._stored(route)
        if stored == entry:
            return None
        try:
            await self._kube.apply_status(kinds.ROUTE, route, {"gateways": [entry]}, manager=self._manager)
        except errors.NotFound:
            return None  # deleted meanwhile
        if entry["message"] not in ("", NOTHING_PROVEN, stored.get("message")):
            await self._recorder.emit(route, "RouteDegraded", entry["message"], "Warning")
        return None

    def _stored(self, route: Object) -> dict[str, Any]:
        """Return this gateway's entry of a stored Route; empty if there is none."""
        entries: list[dict[str, Any]] = (route.get("status") or {}).get("gateways") or []
        return next((item for item in entries if item["name"] == self._name), {})

    async def _renew_lease(self) -> None:
        """Write the Lease at each interval, and at once when the problem changes."""
        while True:
            self._renew.clear()
            problem = {NOT_SERVING_ANNOTATION: self._problem} if self._problem else {}
            lease = {
                "metadata": {
                    "name": self._manager,
                    "namespace": self._lease_namespace,
                    "annotations": {**self._pages(), **problem},
                },
                "spec": {
                    "holderIdentity": self._name,
                    "leaseDurationSeconds": self._settings.lease_seconds,
                    "renewTime": clock.rfc3339_micro(clock.now()),
                },
            }
            pause = self._settings.lease_renew_seconds
            try:
                await self._kube.apply(kinds.LEASE, lease, manager=self._manager)
            except (errors.ApiError, errors.Unavailable) as error:
                log.info("the Lease was not renewed: %s", error)
                pause = min(pause, LEASE_RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._renew.wait()


def _probes(results: Mapping[str, str]) -> dict[str, Any]:
    """Return the field `probes` of an entry; no field without results."""
    probes = [{"backend": backend, "message": failure} for backend, failure in sorted(results.items())]
    return {"probes": probes} if probes else {}
