"""Which gateways are alive: those whose Lease has not run out. Their word on Routes is what counts.

A gateway that is killed and comes back within its Lease was never away.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from serving import clock
from serving.kube import Informer

Object = dict[str, Any]

LEASE_PREFIX = "slipway-gateway-"
DEFAULT_SECONDS = 15


def live(leases: Iterable[Object], now: dt.datetime) -> frozenset[str]:
    """Return the names of the gateways whose Lease has not run out at `now`."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX)
        for lease in leases
        if lease["metadata"]["name"].startswith(LEASE_PREFIX) and expiry(lease) > now
    )


def expiry(lease: Object) -> dt.datetime:
    """Return when the Lease runs out; the far past for one that was never renewed."""
    spec = lease.get("spec") or {}
    if not spec.get("renewTime"):
        return dt.datetime.min.replace(tzinfo=dt.UTC)
    seconds = spec.get("leaseDurationSeconds", DEFAULT_SECONDS)
    return clock.parse(spec["renewTime"]) + dt.timedelta(seconds=seconds)


class Gateways:
    """Keeps `alive` right as Leases are renewed and run out; renewals alone wake nobody."""

    def __init__(self, leases: Informer, changed: Callable[[], None]) -> None:
        self.alive: frozenset[str] = frozenset()
        self._leases = leases
        self._changed = changed
        leases.on_change(lambda _before, _after: self._look())

    async def run(self, period: float = 1.0) -> None:
        """Notice Leases that run out, every `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            self._look()

    def _look(self) -> None:
        alive = live(self._leases, clock.now())
        if alive != self.alive:
            self.alive = alive
            self._changed()
