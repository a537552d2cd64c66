"""A real Prometheus finds our pages by the list that `up` keeps, with the lines of the documentation."""

import asyncio
import re
from pathlib import Path

import aiohttp
import yaml

from autoscaler.signals import prometheus
from serving import errors, metrics
from serving.data_dir import DataDir
from serving.embedded.supervisor.scrape_targets import ScrapeTargets
from serving.system.network import http_reading
from tests.rig.servers.prometheus_server import check
from tests.rig.servers.prometheus_server import prometheus as running

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "autoscaling.md"


def documented(where: DataDir) -> list[dict[str, object]]:
    """Return the scrape configuration of the documentation, with this data directory in it."""
    (lines,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    config = yaml.safe_load(lines.replace("DIR", str(where.root)))
    return list(config["scrape_configs"])


async def value(session: aiohttp.ClientSession, server: str, query: str) -> float | None:
    try:
        return await prometheus.query_instant(session, server, query)
    except errors.Unavailable:
        return None


async def test_pages_that_are_listed_are_scraped(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    where.root.mkdir()

    async def page() -> str:
        return 'slipway_requests_received_total{predictor="p"} 7\n'

    async with (
        metrics.served({metrics.PATH: page}, where.metrics("gateway"), "127.0.0.1", 0),
        http_reading.session() as session,
    ):
        ScrapeTargets(where).write()
        with running(tmp_path / "prometheus", scrape=documented(where)) as server:
            check(tmp_path / "prometheus" / "prometheus.yml")
            query = 'slipway_requests_received_total{component="gateway",job="slipway"}'
            async with asyncio.timeout(20):
                while await value(session, server, query) != 7:
                    await asyncio.sleep(0.1)
            assert await value(session, server, 'up{component="gateway"}') == 1
