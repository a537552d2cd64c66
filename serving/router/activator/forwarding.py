"""Forwards the held requests of a backend whose replicas speak HTTP/1.1.

Request bodies are held in memory, responses are streamed. Envoy's bridge sends gRPC requests in this form
too.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from serving import grpc_status
from serving.router.activator.connector import host_of
from serving.router.activator.held_backend import (
    ANSWER_NOT_UTF8,
    DRAIN_SECONDS,
    REQUEST_NOT_UTF8,
    HeldBackend,
    NotAnswered,
    NotConnected,
    Refused,
)
from serving.router.activator.request_queue import Refusal
from serving.router.plan import openai_errors
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that are not forwarded (RFC 9110 section 7.6.1), like those that `Connection` names."""
_BODY_HEADERS = frozenset({"content-length", "expect"})
"""Dropped from requests, whose body is sent as a whole; Envoy has answered `Expect`."""
_NO_DEFAULTS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that aiohttp would otherwise add to requests without them."""
_HEADER_BYTES = 64 * 1024
"""Above Envoy's limit of 60 KiB for the headers of a request and of an answer; aiohttp's own is 8 KiB."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class _HttpRequest:
    """A request from Envoy, with its body once it is read."""

    def __init__(
        self,
        request: web.BaseRequest,
        backend: str,
        session: aiohttp.ClientSession,
        unfinished_reads: set[asyncio.Future[None]],
    ) -> None:
        """Args:
        request: as the server has it.
        backend: the name of the backend.
        session: of connections to replicas.
        unfinished_reads: has a future of this request while its body is being read.
        """
        self._request = request
        self._backend = backend
        self._headers = _forwarded(request.headers, drop=_BODY_HEADERS)
        self._session = session
        self._unfinished_reads = unfinished_reads
        self._body = b""

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self._body)

    async def read(self, add_bytes: Callable[[int], None]) -> None:
        """Read the body to its end.

        Raises:
            Refused: bytes of a header would be lost.
        """
        self._refuse_lost_bytes(self._headers, "the header", REQUEST_NOT_UTF8)
        chunks = []
        finished = asyncio.get_running_loop().create_future()
        self._unfinished_reads.add(finished)
        try:
            while chunk := await self._request.content.readany():
                add_bytes(len(chunk))
                chunks.append(chunk)
        finally:
            self._unfinished_reads.discard(finished)
            finished.set_result(None)
        self._body = b"".join(chunks)

    async def send(self, replica: Endpoint) -> aiohttp.ClientResponse:
        """Return the replica's response, of which the headers have arrived.

        Raises:
            NotConnected: the connection failed.
            NotAnswered: the connection ended before the answer began.
            Refused: bytes of a header of the response would be lost.
        """
        request = self._request
        try:
            response = await self._session.request(
                request.method,
                URL(f"http://{host_of(replica)}{request.raw_path}", encoded=True),
                headers=self._headers,
                data=self._body or None,
                allow_redirects=False,
                skip_auto_headers=_NO_DEFAULTS,
                max_line_size=_HEADER_BYTES,
                max_field_size=_HEADER_BYTES,
                middlewares=(_send_once,),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotConnected(str(error)) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise NotAnswered(repr(error)) from error
        try:
            self._refuse_lost_bytes(_forwarded(response.headers), "the replica's header", ANSWER_NOT_UTF8)
        except Refused:
            response.close()
            raise
        return response

    def _refuse_lost_bytes(self, headers: Mapping[str, str], whose: str, reason: str) -> None:
        """Refuse headers with bytes that are not UTF-8: aiohttp reads each as a surrogate, and writes none.

        Raises:
            Refused: for this reason; the message names the header.
        """
        for name, value in headers.items():
            if _SURROGATE.search(value):
                message = f"{whose} {name} is not UTF-8, and cannot be forwarded"
                raise Refused(self._backend, Refusal(reason, message))


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request to a replica; aiohttp repeats idempotent ones after these errors, even if their
    Route forbids it.

    Raises:
        NotAnswered: the connection ended before the answer began.
    """
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise NotAnswered(repr(error)) from error


class BackendListener:
    """The socket to which Envoy sends one backend's requests."""

    def __init__(
        self, backend: HeldBackend, path: Path, settings: ActivatorSettings, session: aiohttp.ClientSession
    ) -> None:
        """Args: session: of connections to replicas; it must not decode bodies."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,  # a held request does no I/O by which it would notice a hang-up
            auto_decompress=False,
            access_log=None,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
        )
        self.backend = backend
        self._session = session
        self._settings = settings
        self._runner = web.ServerRunner(server, shutdown_timeout=DRAIN_SECONDS)
        self._path = path
        self._unfinished_reads: set[asyncio.Future[None]] = set()

    async def open(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.UnixSite(self._runner, self._path, backlog=self._settings.backlog).start()

    async def close(self) -> None:
        """Stop listening, and wait for the bodies and the answers in flight."""
        self._path.unlink(missing_ok=True)
        if self._unfinished_reads:  # `cleanup` drops all bytes that arrive after its start
            await asyncio.wait(set(self._unfinished_reads), timeout=DRAIN_SECONDS)
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            held = _HttpRequest(request, self.backend.name, self._session, self._unfinished_reads)
            answer = await self.backend.hold(held)
        except Refused as refused:
            return self._refusal(request, refused)
        async with answer:
            return await _stream_answer(request, answer)

    def _refusal(self, request: web.BaseRequest, refused: Refused) -> web.Response:
        """Return the response to a refused request, in the form of the gateway's own errors."""
        status = refused.http_status
        headers = {"Retry-After": str(self._settings.retry_after_seconds)} if status == 503 else {}
        if request.headers.get("Content-Type") == grpc_status.CONTENT_TYPE:
            headers |= {"Content-Type": grpc_status.CONTENT_TYPE, **grpc_status.headers(status, str(refused))}
            return web.Response(status=status, headers=headers)
        body: dict[str, Any] = {"error": str(refused), "reason": refused.reason}
        if openai_errors.has_form(request.raw_path):
            body = openai_errors.document(status, str(refused), refused.reason)
        return web.json_response(body, status=status, headers=headers)


async def _stream_answer(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = _forwarded(answer.headers)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


def _forwarded(headers: CIMultiDictProxy[str], drop: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """Return the headers for the next hop."""
    named = {name.strip().lower() for value in headers.getall("Connection", ()) for name in value.split(",")}
    dropped = _HOP_BY_HOP | named | drop
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
