"""The live gateways, by their Leases; only the entries of live gateways in a Route's status count.

A gateway that is killed and restarts before its Lease expires counts as alive throughout. A gateway whose
Lease expires while the API does not answer also counts as alive: it cannot renew the Lease, and traffic does
not depend on the API.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from serving import clock
from serving.kube import Informer
from serving.resources import leases

CONFIRM_SECONDS = 8.0
"""Time for which a Lease must be expired, while the API answers, before its gateway counts as dead: a live
gateway renews its Lease within it, as it tries every five seconds."""


class LiveGateways:
    """Keeps `alive` and `problems` up to date as Leases begin and expire; a mere renewal is no change."""

    def __init__(
        self, leases_: Informer, on_change: Callable[[], None], api_answers: Callable[[], Awaitable[bool]]
    ) -> None:
        """Follow the Leases.

        Args:
            leases_: the informer of the Leases.
            on_change: called when `alive` or `problems` has changed.
            api_answers: returns whether the API answers now.
        """
        self.alive: frozenset[str] = frozenset()
        """Names of the live gateways."""
        self.problems: Mapping[str, str] = {}
        """Why live gateways serve no requests, by name; without the gateways that serve."""
        self._leases = leases_
        self._renewals = leases.Renewals()
        self._on_change = on_change
        self._api_answers = api_answers
        self._expired_since: dict[str, float] = {}
        """By gateway, the monotonic seconds of the check since which its Lease is expired and the API
        answers."""
        leases_.on_change(lambda _before, _after: self._update())

    async def run(self, period: float = 1.0) -> None:
        """Check for expired Leases every `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            await self.check()

    async def check(self) -> None:
        """Update `alive`; while the API answers, also count for how long expired Leases have been expired."""
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
        """Return the gateways that were alive and do not count as dead yet.

        A gateway without a Lease has ended by itself, and counts as dead at once.
        """
        now = clock.monotonic()
        with_lease = self.alive & leases.named(self._leases)
        return frozenset(
            name for name in with_lease if now - self._expired_since.get(name, now) < CONFIRM_SECONDS
        )
