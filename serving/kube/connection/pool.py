"""Connections to the API that end when they are closed.

Closing TLS waits up to 30 s for the close_notify alert of the server, which a hung server never sends.
aiohttp aborts the idle connections of a session that ends, but only closes the others, and forgets them: that
of a cancelled request or watch, and that of a response with `Connection: close`. Those are aborted here.
"""

import asyncio

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from serving.kube.connection.kubernetes_aio import RESTClientObject


class ConnectionPool(RESTClientObject):  # type: ignore[misc] # the client has no types
    """Makes the session of a configuration."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return _Connector(limit=self.maxsize, ssl=self.ssl_context)


class _Connector(aiohttp.TCPConnector):
    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a connection that is aborted if aiohttp closes it after the request."""
        connection = await super().connect(req, traces, timeout)
        loop, transport = asyncio.get_running_loop(), connection.transport

        def ended() -> None:  # right before aiohttp keeps or closes the connection
            loop.call_soon(_abort_if_closing, transport)

        connection.add_callback(ended)
        return connection


def _abort_if_closing(transport: asyncio.Transport | None) -> None:
    if transport is not None and transport.is_closing():
        transport.abort()
