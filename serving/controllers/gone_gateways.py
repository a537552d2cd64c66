"""Removes the Leases of gateways that are gone, and their entries in the statuses of Routes and Autoscalers.

On a cluster a gateway has the name of its Pod, and no later Pod has this name: nobody else would remove them.
A gateway that ends in order removes its own Lease and entries.
"""

import asyncio
import logging

from serving import clock, errors
from serving.kube import Key, Kube, Watches
from serving.kube.status_withdrawal import withdraw_each
from serving.objects import Object
from serving.resources import kinds, leases, names
from serving.settings import ControllerSettings

log = logging.getLogger(__name__)

SWEEP_SECONDS = 10.0
"""Between two sweeps, which read only the caches."""


class GoneGateways:
    """Sweeps away the Leases and status entries of gone gateways; one instance per process."""

    def __init__(self, kube: Kube, settings: ControllerSettings, watches: Watches) -> None:
        self._kube = kube
        self._gone_seconds = settings.gone_gateway_seconds
        self._routes = watches.of(kinds.ROUTE)
        self._autoscalers = watches.of(kinds.AUTOSCALER)
        self._leases = watches.of(kinds.LEASE, namespace=settings.lease_namespace)
        self._renewals = leases.Renewals()
        self._gone_since: dict[str, float] = {}
        """By gateway, the monotonic seconds of the first sweep that saw no Lease of it, or an expired one."""

    async def run(self) -> None:
        """Sweep every `SWEEP_SECONDS` until cancelled."""
        for informer in (self._routes, self._autoscalers, self._leases):
            await informer.synced.wait()
        while True:
            try:
                await self.sweep()
            except (errors.ApiError, errors.Unavailable) as error:
                log.info("Leases and status entries of gone gateways are not removed: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Remove Lease and entries of each gateway without a valid Lease for `gone_gateway_seconds`.

        Without a live gateway no gateway counts as gone: while the API is away, no Lease is renewed.

        Raises:
            errors.ApiError, errors.Unavailable: the API failed; the next sweep removes the rest.
        """
        now = clock.monotonic()
        live = self._renewals.live(self._leases, clock.now(), now)
        gone = self._known() - live if live else frozenset()
        self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
        for name in sorted(gone):
            if now - self._gone_since[name] >= self._gone_seconds and await self._remove(name):
                del self._gone_since[name]
                log.info("removed the Lease and the status entries of the gateway %s", name)

    def _known(self) -> frozenset[str]:
        """Return the names of the gateways that have a Lease, or an entry in a status."""
        return leases.named(self._leases).union(
            *(_gateways_of(route) for route in self._routes),
            *(_activators_of(autoscaler) for autoscaler in self._autoscalers),
        )

    async def _remove(self, name: str) -> bool:
        """Remove the entries and then the Lease of one gateway; False if the API rejects a write.

        The Lease is last, so that the next sweep knows the gateway's name if this one is interrupted.
        """
        routes = (Key.of(route) for route in self._routes if name in _gateways_of(route))
        gateway_manager = f"{names.FIELD_MANAGER_PREFIX}gateway-{name}"
        is_clean = await withdraw_each(self._kube, kinds.ROUTE, routes, gateway_manager)
        autoscalers = (
            Key.of(autoscaler) for autoscaler in self._autoscalers if name in _activators_of(autoscaler)
        )
        activator_manager = f"{names.FIELD_MANAGER_PREFIX}{names.ACTIVATOR_REPORTER}{name}"
        is_clean &= await withdraw_each(self._kube, kinds.AUTOSCALER, autoscalers, activator_manager)
        if not is_clean:
            return False
        for lease in self._leases:
            meta = lease["metadata"]
            if meta["name"] == f"{leases.LEASE_PREFIX}{name}":
                await self._kube.delete(kinds.LEASE, meta["namespace"], meta["name"], uid=meta["uid"])
        return True


def _gateways_of(route: Object) -> frozenset[str]:
    return frozenset(entry["name"] for entry in (route.get("status") or {}).get("gateways") or [])


def _activators_of(autoscaler: Object) -> frozenset[str]:
    """Return the gateways whose activators have reported demand to the Autoscaler."""
    prefix = names.ACTIVATOR_REPORTER
    demand = (autoscaler.get("status") or {}).get("demand") or []
    reporters = (str(entry["reporter"]) for entry in demand)
    return frozenset(name.removeprefix(prefix) for name in reporters if name.startswith(prefix))
