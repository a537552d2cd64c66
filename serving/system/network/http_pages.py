"""Serves a few read-only pages over HTTP/1, to kubelets and scrapers that may be anyone on the network.

It must not become a web framework: no bodies of requests, no keep-alive, no TLS. A client gets a limited time
and few bytes, so that one that sends half a request, or reads no answer, holds a connection for seconds only.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from serving import errors

log = logging.getLogger(__name__)

HEAD_BYTES = 8 * 1024
"""Longest request line with headers, as of most servers; a scraper's has some 300 bytes."""
REQUEST_SECONDS = 5.0
"""Longest time from a connection to the end of the request's headers; kubelets and scrapers send them at
once."""
ANSWER_SECONDS = 30.0
"""Longest time in which a client reads its answer: 7 MB, the page of a thousand services, at 2 Mbit/s."""
CONNECTIONS = 256
"""Open connections; one more closes the oldest, so that clients who hold connections keep nobody out. More
than twice as many as the event loop accepts at once (100): a new one has its turn before it is the oldest."""
ANSWERS_BYTES = 64 * 1024 * 1024
"""Answers in memory; beyond, the oldest that a client has not read is closed. Nine of the largest pages."""

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The answer to a GET."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN


PageHandler = Callable[[], Awaitable[PageAnswer]]
"""Makes the answer to one request; `errors.Unavailable` becomes a 503."""


@contextlib.asynccontextmanager
async def serving(pages: Mapping[str, PageHandler], host: str, port: int) -> AsyncIterator[int]:
    """Answer on this event loop while the block runs; yield the port.

    Args:
        pages: by path.
        host: a literal address.
        port: TCP port; 0 picks a free one.

    Raises:
        OSError: the address cannot be bound.
    """
    site = _Site(pages)
    server = await asyncio.start_server(site.serve, host, port, limit=HEAD_BYTES)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await site.close()


class _Site:
    """The open connections of one listener."""

    def __init__(self, pages: Mapping[str, PageHandler]) -> None:
        self._pages = pages
        self._connections: dict[asyncio.Task[None], int] = {}
        """The bytes of each one's answer; the oldest first."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        if len(self._connections) >= CONNECTIONS:
            self._close(next(iter(self._connections)))
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = 0
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._exchange(task, reader, writer)
        except asyncio.CancelledError:  # closed; asyncio logs a connection's task that ends as cancelled
            pass
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()

    async def close(self) -> None:
        """Abort all connections."""
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _close(self, connection: asyncio.Task[None]) -> None:
        del self._connections[connection]
        connection.cancel()

    def _make_room(self, connection: asyncio.Task[None], size: int) -> None:
        """Close the oldest connections with an answer until one of `size` bytes fits."""
        self._connections[connection] = size
        excess = sum(self._connections.values()) - ANSWERS_BYTES
        for other, held in tuple(self._connections.items()):
            if excess <= 0:
                break
            if held and other is not connection:
                self._close(other)
                excess -= held

    async def _exchange(
        self, connection: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method = "GET"
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            method, path = _request(head)
            answer = await self._answer(method, path)
        self._make_room(connection, len(answer.body))
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(_head(answer))
            if method != "HEAD":
                writer.write(answer.body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer(self, method: str, path: str) -> PageAnswer:
        if not method:
            return _refusal(HTTPStatus.BAD_REQUEST)
        page = self._pages.get(path)
        if page is None:
            return PageAnswer(
                "".join(f"GET {known}\n" for known in self._pages).encode(), HTTPStatus.NOT_FOUND
            )
        if method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await page()
        except errors.Unavailable as error:
            return PageAnswer(f"{error}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:  # a bug of one page must not end the component
            log.exception("page %s", path)
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def _request(head: bytes) -> tuple[str, str]:
    """Return method and path of a request, empty if it is none."""
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[1].startswith("/") or not parts[2].startswith("HTTP/1."):
        return "", ""
    return parts[0], parts[1].partition("?")[0]


def _refusal(status: HTTPStatus) -> PageAnswer:
    return PageAnswer(f"{status.phrase}\n".encode(), status)


def _head(answer: PageAnswer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
