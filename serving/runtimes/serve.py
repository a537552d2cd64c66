"""Listening and stopping: uvicorn with an end that no client notices.

On SIGTERM: readiness fails and every response from then on closes its connection, for `linger_seconds` and until whoever
opened an idle connection has closed it: a request sent in the moment in which we do may have been begun, so no gateway may
send it again. Then the listener is closed, requests in flight finish, and the process exits 0.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator

import uvicorn

from serving.runtimes.app import Identity, InferenceApp
from serving.settings import RuntimeSettings

_POLL_SECONDS = 0.02
"""Between looks at whether connections are left, as a process ends."""

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
    stopping = asyncio.create_task(_stop_when(told, server, app, identity, settings))
    await server.serve()
    stopping.cancel()


async def _stop_when(
    told: asyncio.Event,
    server: uvicorn.Server,
    app: InferenceApp,
    identity: Identity,
    settings: RuntimeSettings,
) -> None:
    await told.wait()
    _log.info("stopping: %d requests in flight", identity.in_flight)
    app.drain()
    await asyncio.sleep(settings.linger_seconds)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.idle_seconds):
            while server.server_state.connections:  # noqa: ASYNC110 uvicorn tells nobody
                await asyncio.sleep(_POLL_SECONDS)
    server.should_exit = True
