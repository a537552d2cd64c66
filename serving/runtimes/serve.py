"""Runs uvicorn, and stops it without failing a request.

On SIGTERM readiness fails, and every further response closes its connection. After `linger_seconds` the
server waits, for `idle_seconds` at most, until clients have closed their connections. Then the listener
closes, requests in flight finish, and the process exits with 0.

Clients must close first: if the server closed a connection just as a request arrives, the request may have
begun, and a gateway must not repeat it.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import uvicorn

from serving.runtimes.served_model import ServedModel
from serving.settings import RuntimeSettings
from serving.system.network.asgi_server import AsgiServer

_KEEP_ALIVE_SECONDS = 3600
"""Idle time after which the server closes a connection: long, so that gateways close theirs first
(`gateway.upstream_idle_seconds`), for the reason above."""
_POLL_SECONDS = 0.02
"""Between checks for open connections while the process stops."""

_log = logging.getLogger(__name__)


class Application(Protocol):
    """An ASGI application that knows when its process stops."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request."""

    def drain(self) -> None:
        """Report not ready from now on; called when the process begins to stop."""


async def serve(
    app: Application, served: ServedModel, settings: RuntimeSettings, listener: socket.socket
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. The listener is closed with the server."""
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=settings.backlog,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(settings.grace_seconds),
    )
    server = AsgiServer(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(_stop_when(stop, server, app, served, settings))
    await server.serve(sockets=[listener])
    stopping.cancel()


async def _stop_when(
    stop: asyncio.Event,
    server: AsgiServer,
    app: Application,
    served: ServedModel,
    settings: RuntimeSettings,
) -> None:
    """Wait for `stop`, then drain the application and stop the server."""
    await stop.wait()
    _log.info("stopping: %d requests in flight", served.in_flight)
    app.drain()
    await asyncio.sleep(settings.linger_seconds)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.idle_seconds):
            while server.server_state.connections:  # noqa: ASYNC110 uvicorn has no event for this
                await asyncio.sleep(_POLL_SECONDS)
    server.stop()
