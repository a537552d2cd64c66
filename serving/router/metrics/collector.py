"""Reads the counts of Envoy and of its module, only when the gateway's metrics page is requested.

If Envoy does not answer, the page has the counts of the last reading, and their time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from serving import clock, errors
from serving.kube import Key
from serving.router.envoy.admin import Admin
from serving.router.envoy.counts import statistics
from serving.router.envoy.counts.count_table import Answers, CountTable
from serving.router.envoy.counts.token_counts import TokenCounts
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.router.metrics import earlier_answers, token_page
from serving.router.metrics.labels import Labels
from serving.router.metrics.page import EnvoyCounts
from serving.system import processes

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
"""Longest wait for a reading, so that a scraper gets a page even if Envoy is late. Envoy's main thread reads
configuration for at most 0.3 s at a time."""
FRESH_SECONDS = 0.2
"""A younger reading is used again, so that several scrapers cost a few readings per second."""
PAUSE_SHARE = 20.0
"""Pause after a reading, in multiples of the reading's time, so that readings take at most a twentieth of the
time of Envoy's main thread."""
LONGEST_PAUSE_SECONDS = 1.0
"""Limit of the pause: on a busy machine, a reading may take long for other reasons."""


class StatisticsCollector:
    """The metrics page of one gateway, over the runs of Envoy."""

    def __init__(self, gateway: str, admin: Admin, process: EnvoyProcess, record: Path) -> None:
        """Read nothing yet; `record` is the file of `earlier_answers`."""
        self._gateway = gateway
        self._admin = admin
        self._process = process
        self._record = record
        self._recorded: dict[str, Answers] = {}
        """The answers in the record of this Envoy."""
        self._labels: dict[Key, dict[str, Labels]] = {}
        """By Route, and then by cluster."""
        self._by_cluster: dict[str, Labels] | None = None
        """The labels of all Routes, by cluster; None after a change."""
        self._envoy: RunningEnvoy | None = None
        """The Envoy of the last reading."""
        self._table: CountTable | None = None
        """The counts of the module in this Envoy."""
        self._answers: dict[str, Answers] = {}
        """The module's counts of answers at the last reading, by cluster."""
        self._counts = EnvoyCounts(0.0)
        """The request counts of this Envoy, formatted for the page."""
        self._token_routes: set[Key] = set()
        """The Routes whose tokens Envoy counts."""
        self._tokens: dict[str, TokenCounts] = {}
        """The module's counts of tokens at the last reading, by cluster."""
        self._fresh_until = 0.0
        """Until then, on the monotonic clock, the last reading is used again."""
        self._text = ""
        """Envoy's statistics page at the last reading."""
        self._reading: asyncio.Task[str] | None = None
        """The reading in progress, or the last one; its result is that of `_read`."""
        self._routes_known = False

    def set_labels(self, route: Key, labels: Mapping[str, Labels], *, with_tokens: bool = False) -> None:
        """Set the labels of a Route's clusters; an empty mapping removes the Route from the page.

        Args:
            route: the Route.
            labels: by cluster.
            with_tokens: whether Envoy counts the tokens of the Route's requests.
        """
        if with_tokens:
            self._token_routes.add(route)
        else:
            self._token_routes.discard(route)
        if labels:
            self._labels[route] = dict(labels)
        else:
            self._labels.pop(route, None)
        self._by_cluster = None

    def mark_routes_known(self) -> None:
        """Declare all Routes known: from now on, a cluster that is not on the page has had no requests."""
        self._routes_known = True

    async def page(self, *, buckets: bool = True) -> str:
        """Return the page of metrics, with a new reading unless the last one is fresh or Envoy is late.

        Args:
            buckets: with the buckets of histograms, which are most of the page.

        Raises:
            errors.Unavailable: not all Routes are known yet.
        """
        if not self._routes_known:
            raise errors.Unavailable("the Routes are not known yet")
        problem = "Envoy is late"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                problem = await self._refresh()
        if problem:
            log.info("the page has the counts of %.3f: %s", self._counts.read_at, problem)
        if self._by_cluster is None:
            # If two Routes share a Service, its requests count for the later Route.
            self._by_cluster = {
                cluster: labels
                for by_cluster in self._labels.values()
                for cluster, labels in by_cluster.items()
            }
        labels = self._by_cluster
        tokens = {name: self._tokens.get(name, TokenCounts()) for name in self._token_clusters()}
        page = self._counts.page(self._gateway, labels, buckets=buckets)
        return page + token_page.families(tokens, labels, self._counts.read_at)

    def _token_clusters(self) -> set[str]:
        """Return the clusters whose tokens are counted."""
        return {cluster for route in self._token_routes for cluster in self._labels.get(route, ())}

    async def _refresh(self) -> str:
        """Read once for all concurrent requests; return why there is no fresh reading, or an empty text."""
        if clock.monotonic() < self._fresh_until:
            return ""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> str:
        """Read all counts; return why there is no new reading, or an empty text."""
        envoy, now, began = self._process.running(), clock.now().timestamp(), clock.monotonic()
        if envoy is None:
            return "Envoy is not running"
        is_new = envoy != self._envoy
        try:
            table = CountTable(envoy.pid) if is_new or self._table is None else self._table
            # Read before Envoy's count of arrivals, so that no more requests are answered than have arrived.
            answers = table.answers()
            text = await self._admin.counts()
            pause = min(PAUSE_SHARE * (clock.monotonic() - began), LONGEST_PAUSE_SECONDS)
            has_changed = is_new or text != self._text or answers != self._answers
            clusters = statistics.parse(text) if has_changed else {}
            tokens = {name: table.tokens(name) for name in self._token_clusters()}
            if not processes.is_alive(envoy.process):
                return "Envoy exited during the reading"
        except (errors.Unavailable, ValueError, OSError) as error:
            return str(error)
        if is_new:
            self._envoy, self._table = envoy, table
            self._recorded = earlier_answers.read(self._record, envoy.process)
            self._counts = EnvoyCounts(envoy.process.started_at(), dict(self._recorded))
        if has_changed:
            self._counts.update(clusters, answers, now)
            if (unreadable := self._counts.unreadable_answers) != self._recorded:
                earlier_answers.write(self._record, envoy.process, unreadable)
                self._recorded = unreadable
        self._counts.read_at = now
        self._text, self._answers, self._tokens = text, answers, tokens
        self._fresh_until = clock.monotonic() + max(FRESH_SECONDS, pause)
        return ""
