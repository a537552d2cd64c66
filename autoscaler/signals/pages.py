"""Reads the metrics pages of gateways and activators, at the addresses that the gateways' Leases name."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

import aiohttp

from autoscaler.signals.board import Reading
from autoscaler.signals.exposition import Parser, ScaleTargetName, SignalsPage
from serving import errors, metrics
from serving.resources.leases import GatewayPages
from serving.system.network import http_reading

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 3.0
"""Timeout of one page: a gateway waits a second for Envoy, and writes 7 MB for a thousand services."""


class Scrape(NamedTuple):
    """The content of all pages at one time."""

    readings: tuple[Reading, ...]
    """One of each gateway whose page was read."""
    held: Mapping[ScaleTargetName, float]
    """Held requests, summed over the activators."""
    activators: frozenset[str]
    """Names of the activators that answered."""
    problems: Mapping[str, str] = MappingProxyType({})
    """Why a gateway's page cannot be requested or used, by the name of the gateway."""


class Pages:
    """The pages of live gateways and of the activators beside them."""

    def __init__(self, gateways: Callable[[], Mapping[str, GatewayPages]]) -> None:
        """Create the reader; the first `read` opens the connections.

        Args:
            gateways: returns the addresses of the live gateways' pages, by their names.
        """
        self._gateways = gateways
        self._logged_problems: dict[str, str] = {}
        """Problems of the last scrape, by the names of the gateways: an unchanged problem is logged once."""
        self._parsers: dict[str, Parser] = {}
        """By URL: a parser caches the last page of its URL."""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def read(self, timed_targets: AbstractSet[ScaleTargetName] = frozenset()) -> Scrape:
        """Read all pages; a page that does not answer is left out.

        Args:
            timed_targets: targets whose histograms of durations are parsed.
        """
        if self._session is None:
            self._session = http_reading.session()
        gateways = self._gateways()
        pages = await asyncio.gather(
            *(self._gateway(self._session, urls.gateway, timed_targets) for urls in gateways.values()),
            *(self._page(self._session, urls.activator, frozenset()) for urls in gateways.values()),
        )
        gateway_pages, activator_pages = pages[: len(gateways)], pages[len(gateways) :]
        live_urls = {url for urls in gateways.values() for url in (urls.gateway, urls.activator) if url}
        self._parsers = {url: self._parsers[url] for url in live_urls}
        readings: list[Reading] = []
        held: dict[ScaleTargetName, float] = {}
        activators = set()
        problems = {name: urls.problem for name, urls in gateways.items() if urls.problem}
        for name, page in zip(gateways, gateway_pages, strict=True):
            if page is None:
                continue
            if page.gateway != name:
                problems[name] = f"its page is that of gateway {page.gateway[:40]!r}"
                continue
            readings.append(
                Reading(
                    name,
                    page.read_at,
                    page.started,
                    page.counts,
                    buckets=page.buckets,
                    timed_targets=frozenset(timed_targets),
                    tokens=page.tokens,
                )
            )
        for page in activator_pages:
            if page is None or not page.activator:  # as above, another process may listen there
                continue
            activators.add(page.activator)
            for target, count in page.held.items():
                if 0 < count < float("inf"):
                    held[target] = held.get(target, 0.0) + count
        self._log(problems)
        return Scrape(tuple(readings), held, frozenset(activators), problems)

    async def _gateway(
        self, session: aiohttp.ClientSession, url: str, timed_targets: AbstractSet[ScaleTargetName]
    ) -> SignalsPage | None:
        """Read a gateway's page. Without timed targets leave out the buckets, which are most of the page."""
        return await self._page(session, url, timed_targets, "" if timed_targets else metrics.TOTALS)

    async def _page(
        self,
        session: aiohttp.ClientSession,
        url: str,
        timed_targets: AbstractSet[ScaleTargetName],
        part: str = "",
    ) -> SignalsPage | None:
        if not url:
            return None
        parser = self._parsers.setdefault(url, Parser())
        try:
            page = await http_reading.get(
                session, url + part, limit=metrics.MAX_BYTES, seconds=TIMEOUT_SECONDS
            )
            return parser.page(page.text, timed_targets) if page.status == 200 else None
        except (errors.Unavailable, ValueError):
            return None  # the board reports a live gateway without a reading

    def _log(self, problems: dict[str, str]) -> None:
        for name, problem in problems.items():
            if self._logged_problems.get(name) != problem:
                log.warning("gateway %s: %s", name, problem)
        self._logged_problems = problems
