"""Removes what gateways that are gone have left: their Leases, and their parts of statuses.

On a cluster a gateway has the name of its Pod, which never returns. A gateway that ends removes its own.
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
"""Between looks at the caches."""


class GoneGateways:
    """One per process."""

    def __init__(self, kube: Kube, settings: ControllerSettings, watches: Watches) -> None:
        self._kube = kube
        self._gone_seconds = settings.gone_gateway_seconds
        self._routes = watches.of(kinds.ROUTE)
        self._autoscalers = watches.of(kinds.AUTOSCALER)
        self._leases = watches.of(kinds.LEASE, namespace=settings.lease_namespace)
        self._renewals = leases.Renewals()
        self._gone_since: dict[str, float] = {}
        """By name, the monotonic seconds at which a sweep has seen no Lease, or an expired one, first."""

    async def run(self) -> None:
        """Sweep now and then until cancelled."""
        for informer in (self._routes, self._autoscalers, self._leases):
            await informer.synced.wait()
        while True:
            try:
                await self.sweep()
            except (errors.ApiError, errors.Unavailable) as error:
                log.info("what gone gateways have left is not removed: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Remove what gateways have left whose Lease has been missing or expired for long.

        Without a live gateway nothing counts as left: no Lease is renewed while the API is away.

        Raises:
            errors.ApiError, errors.Unavailable: the rest is removed by the next sweep.
        """
        now = clock.monotonic()
        live = self._renewals.live(self._leases, clock.now(), now)
        gone = self._known() - live if live else frozenset()
        self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
        for name in sorted(gone):
            if now - self._gone_since[name] >= self._gone_seconds and await self._remove(name):
                del self._gone_since[name]
                log.info("removed what the gateway %s has left", name)

    def _known(self) -> frozenset[str]:
        """Return the names of the gateways that have a Lease, or a part in a status."""
        return leases.named(self._leases).union(
            *(_gateways_of(route) for route in self._routes),
            *(_activators_of(autoscaler) for autoscaler in self._autoscalers),
        )

    async def _remove(self, name: str) -> bool:
        """Remove what one gateway has left; False if an object refuses the write.

        The Lease is last, so that the gateway's name is known until then.
        """
        routes = (Key.of(route) for route in self._routes if name in _gateways_of(route))
        is_clean = await withdraw_each(
            self._kube, kinds.ROUTE, routes, f"{names.FIELD_MANAGER_PREFIX}gateway-{name}"
        )
        reporters = (Key.of(each) for each in self._autoscalers if name in _activators_of(each))
        manager = f"{names.FIELD_MANAGER_PREFIX}{names.ACTIVATOR_REPORTER}{name}"
        is_clean &= await withdraw_each(self._kube, kinds.AUTOSCALER, reporters, manager)
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
    """Return the gateways beside which activators have reported demand."""
    prefix = names.ACTIVATOR_REPORTER
    demand = (autoscaler.get("status") or {}).get("demand") or []
    reporters = (str(entry["reporter"]) for entry in demand)
    return frozenset(name.removeprefix(prefix) for name in reporters if name.startswith(prefix))
