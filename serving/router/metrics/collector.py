"""What Envoy counts, read when somebody asks for the gateway's page of metrics.

Nobody asking costs nothing. A reading that Envoy does not answer leaves the counts of the one before, and the page says
of when those are.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from serving import clock, errors
from serving.kube import Key
from serving.router.envoy import statistics
from serving.router.envoy.admin import Admin
from serving.router.envoy.process import EnvoyProcess, RunningEnvoy
from serving.router.metrics.labels import Labels
from serving.router.metrics.page import Tally
from serving.router.route_status import NAME
from serving.system import processes

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
"""Longest wait of a page for a reading: Envoy's main thread reads configuration for at most 0.3 s at a time, and a
scraper must not give up on the gateway because Envoy is late."""
FRESH_SECONDS = 0.2
"""A reading that is younger is given again, so that several scrapers cost as much as a few readings a second."""
PAUSE_SHARE = 20.0
"""So is one that is younger than this many times what Envoy took for it: readings take a twentieth of its main thread."""
LONGEST_PAUSE_SECONDS = 1.0
"""At most; on a busy machine Envoy may be late for other reasons, and counts must not grow old for that."""
DURATIONS_SECONDS = 5.0
"""Between readings of durations, which are most of what there is to read, where clusters are busy; percentiles are of more than
a few seconds' answers anyway."""


class Signals:
    """The counts of one Envoy at a time."""

    def __init__(self, admin: Admin, process: EnvoyProcess) -> None:
        self._admin = admin
        self._process = process
        self._labels: dict[Key, dict[str, Labels]] = {}
        """Of each Route, its clusters'."""
        self._envoy: RunningEnvoy | None = None
        self._tally = Tally(0.0)
        self._fresh_until = self._durations_until = 0.0
        self._reading: asyncio.Task[str] | None = None
        self._knows_routes = False

    def know(self, route: Key, labels: Mapping[str, Labels]) -> None:
        """Have these clusters of a Route on the page from now on, and no others."""
        if labels:
            self._labels[route] = dict(labels)
        else:
            self._labels.pop(route, None)

    def knows_routes(self) -> None:
        """All Routes have been told: a cluster that is not on the page from now on has had no requests."""
        self._knows_routes = True

    async def page(self) -> str:
        """Return the page of metrics, with a fresh reading if there is one in time.

        Raises:
            errors.Unavailable: not all Routes are known yet.
        """
        if not self._knows_routes:
            raise errors.Unavailable("the Routes are not known yet")
        problem = "Envoy is late"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                problem = await self._fresh()
        if problem:
            log.info("the counts of %.3f are given again: %s", self._tally.read_at, problem)
        # Of two Routes with one Service, nothing says whose a request is: the one that was told last has them all.
        labels = {name: who for found in self._labels.values() for name, who in found.items()}
        return self._tally.page(NAME, labels)

    async def _fresh(self) -> str:
        """Have a reading of now, for all who ask at once; return why there is none."""
        if clock.monotonic() < self._fresh_until:
            return ""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._look())
        return await asyncio.shield(self._reading)

    async def _look(self) -> str:
        envoy, now, began = self._process.running(), clock.now().timestamp(), clock.monotonic()
        if envoy is None:
            return "Envoy is not there"
        durations = envoy != self._envoy or began >= self._durations_until
        try:
            text = await self._admin.statistics(durations=durations)
            pause = min(PAUSE_SHARE * (clock.monotonic() - began), LONGEST_PAUSE_SECONDS)
            found = statistics.read(text)
            if not processes.is_alive(envoy.process):
                return "Envoy has gone while it was read"
            if envoy != self._envoy:
                self._envoy, self._tally = envoy, Tally(envoy.process.started_at())
            self._tally.put(found, now, durations=durations)
        except (errors.Unavailable, ValueError) as error:
            return str(error)
        self._fresh_until = clock.monotonic() + max(FRESH_SECONDS, pause)
        if durations:
            self._durations_until = began + DURATIONS_SECONDS
        return ""
