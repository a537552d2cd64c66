"""A minimal request and response over ASGI.

Starlette's classes would double the cost of a small write.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from serving import errors
from serving.embedded.apiserver.requests import bodies

_CACHED_QUERY_BYTES = 256
"""Shorter queries are cached: clients repeat a few of them."""
_LENGTH_DIGITS = 19
"""Most digits of a Content-Length that are compared with the limit; `int` refuses thousands of digits."""
_LONG_YAML_BYTES = 16 * 1024
"""Longer YAML is parsed in a thread: 700 KB take 5 s, and `up` ends a server that hangs."""
_yaml_parser = ThreadPoolExecutor(1, "yaml")
"""One thread: several would share Python's lock with the event loop, which would seem to hang."""
_CHUNK_BYTES = 1024 * 1024
"""Bytes of a response that are encrypted before other requests are served: 280 MB at once take seconds."""


class AsgiRequest:
    """Method, headers, query and body of a request."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.method: str = scope["method"]
        self.headers: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])
        }
        """Values by lower-case name; of repeated headers the first."""
        query: bytes = scope["query_string"]
        self.query: Mapping[str, str] = (
            _cached_query(query) if len(query) < _CACHED_QUERY_BYTES else _query(query)
        )
        """Values by name; of repeated parameters the last."""

    async def body(self, limit: int) -> bytes:
        """Read the body, of `limit` bytes at most.

        Raises:
            errors.ApiError: 413 for more than `limit` bytes, 400 where the client disconnected.
        """
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length[:_LENGTH_DIGITS]) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise errors.ApiError(400, "BadRequest", "the request ended before its body did")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def value(self, limit: int, protobuf_kind: str = "") -> Any:
        """Read the body, of `limit` bytes at most, and return its value, as `bodies.parse`.

        Raises:
            errors.ApiError: as `body` and `bodies.parse`.
        """
        return await self.parsed(await self.body(limit), protobuf_kind)

    async def parsed(self, raw: bytes, protobuf_kind: str) -> Any:
        """Return the value of the body `raw`, as `bodies.parse`; long YAML does not block the event loop."""
        media = bodies.media_type(self.headers.get("content-type", ""))
        if len(raw) > _LONG_YAML_BYTES and media in bodies.YAMLS:
            return await asyncio.get_running_loop().run_in_executor(
                _yaml_parser, bodies.parse, raw, media, protobuf_kind
            )
        return bodies.parse(raw, media, protobuf_kind)


def _query(text: bytes) -> Mapping[str, str]:
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))


_cached_query = lru_cache(256)(_query)


def _too_large(limit: int) -> errors.ApiError:
    return errors.ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit} bytes")


class JsonResponse:
    """A response in JSON, as an ASGI application."""

    def __init__(self, body: bytes, code: int = 200, warnings: tuple[str, ...] = ()) -> None:
        self.body, self.code = body, code
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *((b"warning", _warning(text).encode()) for text in warnings),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 ASGI's
        await send({"type": "http.response.start", "status": self.code, "headers": self._headers})
        for start in range(0, max(1, len(self.body)), _CHUNK_BYTES):
            chunk = self.body[start : start + _CHUNK_BYTES]
            is_last = start + _CHUNK_BYTES >= len(self.body)
            await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})
            if not is_last:
                await asyncio.sleep(0)  # `send` itself lets others run only if the client reads slowly


def _warning(text: str) -> str:
    """Return a Warning header's value (RFC 7234 5.5): 299 and the text as a quoted string."""
    printable = "".join(char if 32 <= ord(char) < 127 else "?" for char in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
