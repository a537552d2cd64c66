"""Listening and stopping: uvicorn with an end that no client notices.

On SIGTERM: readiness fails and every response from then on closes its connection, for `linger_seconds`; then the
listener and idle connections are closed, requests in flight finish, and the process exits 0.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator

import uvicorn

from serving.runtimes.app import Identity, InferenceApp
from serving.settings import RuntimeSettings

_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would stop at once, and raise the signal again when it has: the exit status would not be 0.
        yield


async def serve(
    app: InferenceApp, identity: Identity, settings: RuntimeSettings, host: str, port: int
) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
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
        timeout_keep_alive=3600,
        timeout_graceful_shutdown=round(settings.grace_seconds),
    )
    server = _Server(config)
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    stopping = asyncio.create_task(_stop_when(told, server, identity, settings))
    await server.serve()
    stopping.cancel()


async def _stop_when(
    told: asyncio.Event, server: uvicorn.Server, identity: Identity, settings: RuntimeSettings
) -> None:
    await told.wait()
    _log.info("stopping: %d requests in flight", identity.in_flight)
    identity.draining = True
    await asyncio.sleep(settings.linger_seconds)
    server.should_exit = True
