"""uvicorn's server for processes that may idle for days, which stop only when their owner asks."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import cast

import uvicorn

from serving.system.network.listener import Listener
from serving.system.network.tls_listener import TlsListener


class AsgiServer(uvicorn.Server):
    """Serves until `stop`, without the ten wake-ups a second with which uvicorn checks for its end.

    At these wake-ups uvicorn also updates the date header of responses: the configuration must have
    `date_header=False`, or every response would have the date of the start.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on these sockets, or as configured.

        Only given sockets have a `Listener`, or with TLS a `TlsListener` and its limits on handshakes.
        """
        if sockets is None:
            await super().startup(sockets)
            return
        tls = self.config.ssl
        listeners = [
            Listener(listener, self._protocol, self.config.backlog)
            if tls is None
            else TlsListener(listener, tls, self._protocol, self.stop)
            for listener in sockets
        ]
        self.servers = cast("list[asyncio.Server]", listeners)  # uvicorn calls close and wait_closed
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        protocol_of = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return protocol_of(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, once each accepted connection has its protocol: uvicorn ends only these."""
        if sockets is not None:  # an asyncio.Server would wait for the end of its connections
            for server in self.servers:
                server.close()
                await server.wait_closed()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop accepting connections, and finish the requests in flight."""
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner: uvicorn would catch them, and raise them again after its end."""
        yield

    async def main_loop(self) -> None:
        """Wait for `stop`."""
        await self.on_tick(0)  # sets the default headers of all responses
        await self._stopped.wait()
