"""Serves a component's metrics to Prometheus and the autoscaler, and records the address."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from serving.system.files import run_files
from serving.system.network import addresses, http_pages

LOOPBACK = "127.0.0.1"
"""Address of a page whose record has no host."""
PATH = "/metrics"
TOTALS = "/totals"
TOTALS_PATH = PATH + TOTALS
"""The page of a gateway without the buckets of histograms, which make up most of `PATH`."""
MAX_BYTES = 64 * 1024 * 1024
"""Longest page that is read, for 10,000 services: any process may listen at the port of a component that
ended."""

START_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds, from a phase of a forked replica to the download of a large model, for which requests wait."""


@dataclass(frozen=True)
class MetricsPage:
    """Address of a component's metrics, as it recorded it; the component may have ended."""

    component: str
    port: int
    bound: str = LOOPBACK
    """The address that it listens on."""

    @property
    def authority(self) -> str:
        """Host and port by which this machine reaches it."""
        return addresses.authority(addresses.local(self.bound), self.port)

    @property
    def url(self) -> str:
        return f"http://{self.authority}{PATH}"


def pages(folder: Path) -> list[MetricsPage]:
    """Return the pages that components have recorded in a folder (`DataDir.pages`), by component."""
    recorded_pages = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            recorded_pages.append(recorded(path))
    return recorded_pages


def recorded(record: Path) -> MetricsPage:
    """Return the page that a component has recorded in a file.

    Raises:
        OSError, ValueError, KeyError, TypeError: there is no record, or a malformed one.
    """
    content = orjson.loads(record.read_bytes())
    return MetricsPage(record.stem, int(content["port"]), str(content.get("host", LOOPBACK)))


def of_registry(registry: CollectorRegistry) -> Callable[[], Awaitable[str]]:
    """Return the page of a registry; its collectors, which may block, run in a thread."""

    async def page() -> str:
        return (await asyncio.to_thread(generate_latest, registry)).decode()

    return page


@contextlib.asynccontextmanager
async def served(
    pages: Mapping[str, Callable[[], Awaitable[str]]], record: Path, host: str, port: int
) -> AsyncIterator[MetricsPage]:
    """Serve pages of metrics on this event loop while the block runs; yield the address.

    Args:
        pages: by path, the function that returns the page in Prometheus's format 0.0.4, called for each
            request; errors.Unavailable becomes a 503.
        record: JSON file that gets the address; its name is the component's.
        host: the literal address to listen on.
        port: TCP port; 0 is the latest one in `record` if it is free, else any.

    Raises:
        OSError: the requested port is taken.
    """
    answers = {path: _answered(page) for path, page in pages.items()}
    async with contextlib.AsyncExitStack() as stack:
        try:
            bound_port = await stack.enter_async_context(
                http_pages.serving(answers, host, port or _latest_port(record))
            )
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
            bound_port = await stack.enter_async_context(http_pages.serving(answers, host, 0))
        run_files.write(record, orjson.dumps({"host": host, "port": bound_port}))
        yield MetricsPage(record.stem, bound_port, host)


def _answered(page: Callable[[], Awaitable[str]]) -> http_pages.PageHandler:
    async def answer() -> http_pages.PageAnswer:
        return http_pages.PageAnswer((await page()).encode(), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return answer


def _latest_port(record: Path) -> int:
    """Return the latest port, 0 if there is no valid record."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return recorded(record).port
    return 0
