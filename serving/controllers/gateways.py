"""The live gateways, by their Leases; only their statuses of Routes count.

A gateway that is killed and restarts before its Lease expires counts as alive throughout. So does one whose
Lease expires while the API does not answer: it cannot renew it, and traffic does not depend on the API.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from serving import clock
from serving.kube import Informer
from serving.resources import leases

CONFIRM_SECONDS = 8.0
"""Time in which an expired Lease must stay so while the API answers: a gateway tries to renew its Lease every
five seconds."""


class LiveGateways:
    """Keeps `alive` and `problems` up to date as Leases begin and expire; a mere renewal is no change."""

    def __init__(
        self, leases_: Informer, on_change: Callable[[], None], api_answers: Callable[[], Awaitable[bool]]
    ) -> None:
        """Follow the Leases.

        Args:
            leases_: their cache.
            on_change: called when `alive` or `problems` has changed.
            api_answers: whether the API answers at once.
        """
        self.alive: frozenset[str] = frozenset()
        self.problems: Mapping[str, str] = {}
        """Why live gateways serve no requests; those that do are missing."""
        self._leases = leases_
        self._renewals = leases.Renewals()
        self._on_change = on_change
        self._api_answers = api_answers
        self._expired_since: dict[str, float] = {}
        """Monotonic seconds from which a Lease was expired while the API answered."""
        leases_.on_change(lambda _before, _after: self._update())

    async def run(self, period: float = 1.0) -> None:
        """Check for expired Leases every `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            await self.check()

    async def check(self) -> None:
        """Note which Leases have expired, and which of them while the API answers."""
        expired = self.alive - self._live()
        if expired and not await self._api_answers():
            expired = frozenset()
        now = clock.monotonic()
        self._expired_since = {name: self._expired_since.get(name, now) for name in expired}
        self._update()

    def _update(self) -> None:
        alive = self._live() | self._unconfirmed()
        problems = {name: text for name, text in leases.problems(self._leases).items() if name in alive}
        if (alive, problems) != (self.alive, self.problems):
            self.alive, self.problems = alive, problems
            self._on_change()

    def _live(self) -> frozenset[str]:
        return self._renewals.live(self._leases, clock.now(), clock.monotonic())

    def _unconfirmed(self) -> frozenset[str]:
        """Return the gateways that were alive, and whose end is not certain yet."""
        now = clock.monotonic()
        kept = self.alive & leases.named(self._leases)
        return frozenset(name for name in kept if now - self._expired_since.get(name, now) < CONFIRM_SECONDS)
