"""Serves a component's metrics to Prometheus, over HTTP on loopback, and records the port."""

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from serving import errors
from serving.system import run_files

HOST = "127.0.0.1"
PATH = "/metrics"
TOTALS_PATH = "/metrics/totals"
"""The page of a gateway without the buckets of histograms, which are most of it."""


@dataclass(frozen=True)
class Page:
    """Address of a component's metrics, as it recorded it; the component may have ended."""

    component: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{PATH}"

    @property
    def totals_url(self) -> str:
        """That of a gateway's page without buckets."""
        return f"http://{HOST}:{self.port}{TOTALS_PATH}"


def pages(folder: Path) -> list[Page]:
    """Return the pages that components have recorded in a folder (`DataDir.pages`), by component."""
    recorded = []
    for note in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            recorded.append(Page(note.stem, int(orjson.loads(note.read_bytes())["port"])))
    return recorded


def serve(registry: CollectorRegistry, note: Path, port: int) -> int:
    """Serve `GET /metrics` in threads of this process; return the port.

    Args:
        registry: the metrics.
        note: JSON file that gets the port.
        port: TCP port; 0 is the latest one in `note` if it is free, else any.

    Raises:
        OSError: the requested port is taken.
    """
    requested = port or _latest_port(note)
    try:
        server, _ = start_http_server(requested, HOST, registry)
    except OSError as error:
        if not _can_use_another(error, port):
            raise
        server, _ = start_http_server(0, HOST, registry)
    _record_port(note, int(server.server_port))
    return int(server.server_port)


@contextlib.asynccontextmanager
async def served(
    pages: Mapping[str, Callable[[], Awaitable[str]]], note: Path, port: int
) -> AsyncIterator[int]:
    """Serve pages of metrics on this event loop while the block runs; yield the port.

    Args:
        pages: by path; each returns the text in Prometheus's format 0.0.4, for each request;
            errors.Unavailable becomes a 503.
        note: as for `serve`.
        port: as for `serve`.

    Raises:
        OSError: the requested port is taken.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        page = pages.get(request.path)
        if page is None or request.method != "GET":
            return web.Response(status=404, text="".join(f"GET {path}\n" for path in pages))
        try:
            text = await page()
        except errors.Unavailable as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port or _latest_port(note)).start()
        except OSError as error:
            if not _can_use_another(error, port):
                raise
            await web.TCPSite(runner, HOST, 0).start()
        bound = int(runner.addresses[0][1])
        _record_port(note, bound)
        yield bound
    finally:
        await runner.cleanup()


def _latest_port(note: Path) -> int:
    """Return the latest port, 0 if there is no record."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(orjson.loads(note.read_bytes())["port"])
    return 0


def _can_use_another(error: OSError, requested: int) -> bool:
    return not requested and error.errno == errno.EADDRINUSE


def _record_port(note: Path, port: int) -> None:
    run_files.write(note, orjson.dumps({"port": port}))
