"""How a component lets Prometheus read what it counts: over HTTP on loopback, at a port that it writes down."""

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from serving import errors
from serving.system import atomic_file

HOST = "127.0.0.1"
PATH = "/metrics"


@dataclass(frozen=True)
class Page:
    """Where a component's metrics are, by its own account; it may be gone."""

    component: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{PATH}"


def pages(folder: Path) -> list[Page]:
    """Return the pages that components of a data directory have written down (`DataDir.pages`), by component."""
    found = []
    for note in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found.append(Page(note.stem, int(orjson.loads(note.read_bytes())["port"])))
    return found


def serve(registry: CollectorRegistry, note: Path, port: int) -> int:
    """Answer `GET /metrics` in threads of this process; returns the port.

    Args:
        registry: what is counted.
        note: a JSON file that says the port; the one that was used last is taken again.
        port: TCP; 0 is any.

    Raises:
        OSError: the port that was asked for is another's.
    """
    last = port or _last(note)
    try:
        server, _ = start_http_server(last, HOST, registry)
    except OSError as error:
        if not _may_be_another(error, port):
            raise
        server, _ = start_http_server(0, HOST, registry)
    _write_down(note, int(server.server_port))
    return int(server.server_port)


@contextlib.asynccontextmanager
async def served(page: Callable[[], Awaitable[str]], note: Path, port: int) -> AsyncIterator[int]:
    """Answer `GET /metrics` on this event loop while the block runs; gives the port.

    Args:
        page: makes the text, in Prometheus's format 0.0.4, for each who asks; errors.Unavailable is answered 503.
        note: as for `serve`.
        port: as for `serve`.

    Raises:
        OSError: the port that was asked for is another's.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path != PATH or request.method != "GET":
            return web.Response(status=404, text=f"GET {PATH}\n")
        try:
            text = await page()
        except errors.Unavailable as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port or _last(note)).start()
        except OSError as error:
            if not _may_be_another(error, port):
                raise
            await web.TCPSite(runner, HOST, 0).start()
        taken = int(runner.addresses[0][1])
        _write_down(note, taken)
        yield taken
    finally:
        await runner.cleanup()


def _last(note: Path) -> int:
    """The port that was used last, 0 where none is known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(orjson.loads(note.read_bytes())["port"])
    return 0


def _may_be_another(error: OSError, asked_for: int) -> bool:
    return not asked_for and error.errno == errno.EADDRINUSE


def _write_down(note: Path, port: int) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.replace(note, orjson.dumps({"port": port}))
