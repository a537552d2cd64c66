"""The live gateways, by their Leases; only their statuses of Routes count.

A gateway that is killed and restarts before its Lease expires counts as alive throughout.
"""

import asyncio
from collections.abc import Callable

from serving import clock
from serving.kube import Informer
from serving.resources.leases import live


class LiveGateways:
    """Keeps `alive` up to date as Leases begin and expire; a mere renewal is no change."""

    def __init__(self, leases: Informer, on_change: Callable[[], None]) -> None:
        self.alive: frozenset[str] = frozenset()
        self._leases = leases
        self._on_change = on_change
        leases.on_change(lambda _before, _after: self._update())

    async def run(self, period: float = 1.0) -> None:
        """Check for expired Leases every `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            self._update()

    def _update(self) -> None:
        alive = live(self._leases, clock.now())
        if alive != self.alive:
            self.alive = alive
            self._on_change()
