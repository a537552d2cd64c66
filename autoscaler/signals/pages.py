"""Reads the pages of the gateways and activators of one machine."""

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import aiohttp

from autoscaler.signals.board import Reading
from autoscaler.signals.exposition import Page, Parser, Target
from serving import errors, metrics
from serving.system.network import http_reading

TIMEOUT_SECONDS = 3.0
"""Timeout of one page: a gateway waits a second for Envoy, and writes 7 MB for a thousand services."""
PAGE_BYTES = 64 * 1024 * 1024
"""Longest page, for 10,000 services: any process may listen at the port of a component that ended."""
GATEWAY = "gateway"
COMPONENTS = (GATEWAY, "activator")
"""Prefixes of the names of the components that count requests."""


class Scrape(NamedTuple):
    """The content of all pages at one time."""

    readings: tuple[Reading, ...]
    held: Mapping[Target, float]
    activators: frozenset[str]
    """Names of the activators that answered."""


NOTHING = Scrape((), {}, frozenset())


class Pages:
    """The pages that the files of a data directory name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parsers: dict[str, Parser] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def read(self, timed: AbstractSet[Target] = frozenset()) -> Scrape:
        """Read all pages; a page that does not answer is left out.

        Args:
            timed: targets whose histograms of durations are parsed.
        """
        if self._session is None:
            self._session = http_reading.session()
        addresses = [page for page in metrics.pages(self._folder) if page.component.startswith(COMPONENTS)]
        pages = await asyncio.gather(*(self._page(self._session, address, timed) for address in addresses))
        readings: dict[str, Reading] = {}
        held: dict[Target, float] = {}
        activators = set()
        for page in pages:
            if page is None:
                continue
            if page.gateway:
                readings[page.gateway] = Reading(
                    page.gateway,
                    page.read_at,
                    page.started,
                    page.counts,
                    page.buckets,
                    frozenset(timed),
                    page.tokens,
                )
            if page.activator:
                activators.add(page.activator)
            for target, count in page.held.items():
                if 0 < count < float("inf"):
                    held[target] = held.get(target, 0.0) + count
        return Scrape(tuple(readings.values()), held, frozenset(activators))

    async def _page(
        self, session: aiohttp.ClientSession, address: metrics.Page, timed: AbstractSet[Target]
    ) -> Page | None:
        try:
            has_buckets = bool(timed) or not address.component.startswith(GATEWAY)
            url = address.url if has_buckets else address.totals_url
            page = await http_reading.get(session, url, limit=PAGE_BYTES, seconds=TIMEOUT_SECONDS)
            if page.status != 200:
                return None
            parser = self._parsers.setdefault(address.component, Parser())
            return parser.page(page.text, timed)
        except (errors.Unavailable, ValueError):
            return None  # a live gateway without a page is known by its Lease
