"""Which gateways are alive, as it changes. Their word on Routes is what counts.

A gateway that is killed and comes back within its Lease was never away.
"""

import asyncio
from collections.abc import Callable

from serving import clock
from serving.kube import Informer
from serving.resources.leases import live


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
