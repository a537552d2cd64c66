"""Requests that are answered at once, over kept connections: HTTP/1.1 with no more than an API server needs.

A general client costs a small write five times as much as its bytes do. What streams, and what goes through a proxy or
is redirected, is left to one; this knows neither.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from serving import clock

IDLE_SECONDS = 60.0
"""An idle connection is not used again after this; servers keep theirs a little longer (ours 90 s, kube-apiserver 90 s)."""
_SAFE = re.compile(r"[!-~]+")
"""Of a request's target: printable ASCII without blanks."""
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
"""Methods that may be sent again where a kept connection turns out to be closed (RFC 9110 9.2.2)."""


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes


class Wire:
    """A pool of connections to one server."""

    def __init__(
        self, host: str, context: ssl.SSLContext, *, connections: int, server_name: str | None
    ) -> None:
        """Connect to nothing yet.

        Args:
            host: URL of the server, maybe with a path before all others.
            context: for `https`.
            connections: most at once.
            server_name: what the certificate is for, where that is not the host.
        """
        parts = urlsplit(host)
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._host = parts.hostname or ""
        self._secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._context = context
        self._server_name = server_name or self._host
        self._places = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> Answer:
        """Send a request and return the whole answer.

        Raises:
            TimeoutError: it took longer than `seconds`.
            ConnectionError, OSError, ssl.SSLError: no answer came; the request may or may not have been done.
            ValueError: the target or a header cannot be sent.
        """
        message = self._message(method, target, headers, body)
        async with asyncio.timeout(seconds), self._places:
            kept = self._kept()
            if kept is not None:
                try:
                    return await self._exchange(kept, message)
                except ConnectionError:
                    if method not in _REPEATABLE:
                        raise
            return await self._exchange(await self._connect(), message)

    def _message(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        if not _SAFE.fullmatch(target):
            raise ValueError(f"no target of a request: {target!r}")
        lines = [f"{method} {self._prefix}{target} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method not in ("GET", "DELETE"):
            lines.append(f"Content-Length: {len(body)}")
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header cannot have a line break")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _kept(self) -> "_Connection | None":
        oldest = clock.monotonic() - IDLE_SECONDS
        while self._idle:
            found = self._idle.pop()
            if found.is_open and found.idle_since > oldest:
                return found
            found.close()
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._context if self._secure else None,
            server_hostname=self._server_name if self._secure else None,
        )  # fmt: skip
        return made

    async def _exchange(self, connection: "_Connection", message: bytes) -> Answer:
        done = False
        try:
            answer = await connection.exchange(message)
            done = True
        finally:
            if done and connection.may_stay:
                connection.idle_since = clock.monotonic()
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class _Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self.may_stay = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._answer: asyncio.Future[Answer] | None = None

    async def exchange(self, message: bytes) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            ConnectionError: the connection ended, or what came is no HTTP.
        """
        if self._transport is None or not self.is_open:
            raise ConnectionResetError("the connection was closed")
        self.may_stay = False
        self._pieces = []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = None

    def close(self) -> None:
        """Cut the connection."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's own class is one by its methods alone
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(f"the server closed the connection{f': {exc}' if exc else ''}")

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"no HTTP: {error!r}")
            self.close()

    def on_body(self, body: bytes) -> None:
        """Keep a piece (httptools)."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over (httptools)."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.may_stay = self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(status, b"".join(self._pieces)))

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(why))
