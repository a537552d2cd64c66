"""Connections to the API that end when they are closed, and when their peer vanishes.

Closing TLS waits up to 30 s for the close_notify alert of the server, which a hung server never sends.
aiohttp aborts the idle connections of a session that ends, but only closes the others, and forgets them: that
of a cancelled request or watch, and that of a response with `Connection: close`. Those are aborted here.

A peer that loses its power or its network sends neither FIN nor RST, and a watch waits for its next event
without a limit of its own: TCP asks the peer of a silent connection whether it is alive.
"""

import asyncio
import socket
import sys

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from serving.kube.connection.kubernetes_aio import RESTClientObject

SILENT_SECONDS = 10
"""Silence of a connection before TCP probes its peer: most watches are silent for longer, and a probe of 60
bytes costs nothing."""
PROBE_PAUSE_SECONDS = 5
"""Pause between two probes."""
MOST_PROBES = 4
"""Probes without an answer that end a connection, 30 s after its last packet: a shorter fault of a network,
such as a switch that changes over, ends no watch."""
UNACKNOWLEDGED_MS = (SILENT_SECONDS + MOST_PROBES * PROBE_PAUSE_SECONDS) * 1000
"""Milliseconds after which unacknowledged data ends a connection too: TCP sends no probe while it repeats
data, for a quarter of an hour by default."""


class ConnectionPool(RESTClientObject):  # type: ignore[misc] # the client has no types
    """Makes the session of a configuration."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return _Connector(limit=self.maxsize, ssl=self.ssl_context, socket_factory=_probed_socket)


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


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection ends when its peer vanishes."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":  # a command on another system keeps that system's times
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_PAUSE_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, MOST_PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    return made


def _abort_if_closing(transport: asyncio.Transport | None) -> None:
    if transport is not None and transport.is_closing():
        transport.abort()
