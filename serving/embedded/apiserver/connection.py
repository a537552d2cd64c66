"""A connection to the API server, with limits on the memory that a client without the token can take."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.embedded.apiserver.storage.watches import CONNECTION
from serving.system import allocator

FIRST_REQUEST_SECONDS = 5.0
"""Longest time from a TLS handshake to the end of the first request's headers, which takes milliseconds."""
HEADER_BYTES = 64 * 1024
"""Most bytes of a request's URL, headers and trailers; kube-apiserver has 1 MiB, its clients send 2 KiB."""
MOST_HEADERS = 100
"""Most headers of a request, each of which takes 100 bytes and more; kubectl sends six."""
MOST_SILENT = 1024
"""Most connections without a first request, of 60 KB each; one more closes the oldest."""
_ENDS_BEFORE_TRIM = 256
"""Ended connections after which the server returns their memory to the machine. By itself glibc returns only
the memory behind the last block in use: after 4,500 connections the server kept 300 MB."""
_TRIM_DELAY_SECONDS = 2.0
"""Wait before the memory is returned, in which the other connections of a flood end."""


class ConnectionMemory:
    """Returns the memory of connections to the machine when many have ended."""

    def __init__(self, trim: Callable[[], None] = allocator.return_free_blocks) -> None:
        self._trim = trim
        self._ended = 0

    def add_end(self) -> None:
        """Count a connection that has ended."""
        self._ended += 1
        if self._ended == _ENDS_BEFORE_TRIM:
            asyncio.get_running_loop().call_later(_TRIM_DELAY_SECONDS, self._return)

    def _return(self) -> None:
        self._ended = 0
        self._trim()


class SilentConnections:
    """The connections of one server that have not sent the headers of a request yet, oldest first."""

    def __init__(self, most: int = MOST_SILENT) -> None:
        self._most = most
        self._timers: OrderedDict[asyncio.Transport, asyncio.TimerHandle] = OrderedDict()

    def add(self, transport: asyncio.Transport) -> None:
        """Close the connection after `FIRST_REQUEST_SECONDS`, or earlier if many come after it.

        `discard` prevents both.
        """
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(FIRST_REQUEST_SECONDS, transport.abort)
        if len(self._timers) > self._most:
            oldest = next(iter(self._timers))
            self.discard(oldest)
            oldest.abort()

    def discard(self, transport: asyncio.Transport) -> None:
        """Stop the connection's timer: the connection has sent the headers of a request, or has ended."""
        if (timer := self._timers.pop(transport, None)) is not None:
            timer.cancel()


class _TooMuch(ValueError):
    """A request is beyond a limit; raised in a callback, it ends the parser, and uvicorn answers 400."""


class ApiConnection(HttpToolsProtocol):
    """An HTTP connection with the limits of this module; a handler can abort the connection.

    A close instead of an abort would wait until the peer has read all data.
    """

    def __init__(self, silent: SilentConnections, memory: ConnectionMemory, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._silent, self._memory = silent, memory
        self._header_bytes = 0
        """Bytes of the request's URL, headers and trailers."""
        self._unfinished_bytes = 0
        """Bytes received since the parser last called a callback: the parser buffers an unfinished line."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.discard(self.transport)
        super().connection_lost(exc)
        # The keep-alive timer, `pipeline`, `cycle` and `scope` refer to the connection. Without these
        # reference cycles its memory is free at once: Python's cycle collector runs rarely in this process.
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]
        self._memory.add_end()

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > HEADER_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if self.pipeline:
            raise _TooMuch("requests that wait for the end of another: at most 1")
        super().on_message_begin()
        self._header_bytes = self._unfinished_bytes = 0
        connection: dict[object, object] = {
            "abort": self.transport.abort,
            "is_paused": lambda: self.flow.write_paused,
        }
        self.scope["extensions"] = {CONNECTION: connection}

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))
        if len(self.headers) > MOST_HEADERS:
            raise _TooMuch(f"headers: at most {MOST_HEADERS}")

    def on_headers_complete(self) -> None:
        self._silent.discard(self.transport)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._unfinished_bytes = 0
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES:
            raise _TooMuch(f"headers: at most {HEADER_BYTES} bytes")
