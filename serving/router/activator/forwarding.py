"""Holds one backend's requests until a replica is free, and forwards each over HTTP/1.1.

Request bodies are held in memory, responses are streamed; HTTP/2 and gRPC are not supported. A request that
no replica accepted is retried until its deadline; a request whose client has hung up is dropped.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from serving import clock, errors
from serving.router.activator.connector import host_of
from serving.router.activator.request_queue import BODY_TOO_LARGE, QueueTotals, Refusal, RequestQueue
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

log = logging.getLogger(__name__)

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
_DRAIN_SECONDS = 300.0
"""Longest wait for answers in flight when a backend is gone: the gateway's own limit for a silent stream."""

NO_REPLICA = Refusal("NoReplicaInTime", "no replica was ready in time")
GONE = Refusal("BackendGone", "this predictor was removed")
STOPPING = Refusal("ActivatorStopping", "the activator is stopping")
REPLICA_FAILED = Refusal("ReplicaFailed", "the replica did not answer")


class _Refused(errors.SlipwayError):
    """The request is answered with an error of the activator."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Moved(errors.SlipwayError):
    """The request moves to another backend."""

    def __init__(self, to: "HeldBackend") -> None:
        super().__init__(to.name)
        self.to = to


@dataclass(frozen=True)
class RequestObserver:
    """Callbacks for the events of requests."""

    queue_changed: Callable[["HeldBackend"], None]
    """The number of waiting requests may have changed."""
    woken: Callable[["HeldBackend", Endpoint, float], None]
    """A replica gets the first request after a time without replicas; with its arrival in Unix seconds."""
    answered: Callable[[float], None]
    """A response has begun, after these seconds."""
    refused: Callable[[str], None]
    """A request was refused for this reason."""
    held: Callable[["HeldBackend"], None]
    """A request arrived while no replica was ready."""
    released: Callable[["HeldBackend", float], None]
    """A held request goes to a replica, after these seconds."""


class HeldBackend:
    """The held requests of one backend, and its replicas."""

    def __init__(
        self,
        name: str,
        settings: ActivatorSettings,
        totals: QueueTotals,
        session: aiohttp.ClientSession,
        observer: RequestObserver,
    ) -> None:
        """Args: session: of connections to replicas; it must not decode bodies."""
        self.name = name
        self.queue = RequestQueue(settings, totals)
        self.last_request = 0.0
        """Arrival of the last request, in Unix seconds."""
        self._settings = settings
        self._session = session
        self._observer = observer
        self._tickets = itertools.count()
        self._turns: dict[int, asyncio.Future[Endpoint]] = {}
        self._held_since: dict[int, float] = {}
        """Monotonic arrival times of tickets that arrived without a ready replica and still have none."""
        self._cold_since: float | None = None
        """Unix arrival time of the first of these requests."""
        self._end: Callable[[], errors.SlipwayError] | None = None
        """Makes the error for waiting requests, once this backend is gone."""

    def set_replicas(self, replicas: Iterable[Endpoint]) -> None:
        """Replace the ready replicas."""
        self.queue.set_replicas(replicas)
        self._dispatch()

    def end(self, successor: "HeldBackend | None", refusal: Refusal = GONE) -> None:
        """Move waiting requests to the successor, or refuse them; a request that has a replica keeps it."""
        self._end = partial(_Moved, successor) if successor is not None else partial(_Refused, refusal)
        if not self.queue.replicas or refusal is STOPPING:
            for turn in self._turns.values():
                if not turn.done():
                    turn.set_exception(self._end())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Hold a request, forward it, and stream the response."""
        arrived = clock.monotonic()
        try:
            try:
                async with asyncio.timeout(self._settings.deadline_seconds) as deadline:
                    answer = await self.forward(request, None, deadline)
            except TimeoutError:
                raise _Refused(NO_REPLICA) from None
        except _Refused as refused:
            self._observer.refused(refused.refusal.reason)
            return self._error(refused.refusal)
        self._observer.answered(clock.monotonic() - arrived)
        async with answer:
            return await _stream_answer(request, answer)

    async def forward(
        self,
        request: web.BaseRequest,
        body: bytes | None,
        deadline: asyncio.Timeout,
        held_since: float | None = None,
    ) -> aiohttp.ClientResponse:
        """Return the replica's response, of which the headers have arrived.

        Args:
            request: from Envoy.
            body: None, unless another backend held the request before and has read it.
            deadline: of the wait for a replica; it is off while a replica works.
            held_since: monotonic arrival time at that other backend, if no replica has had the request yet.
        """
        ticket = self._admit()
        if body is None and not self.queue.replicas:
            held_since = clock.monotonic()
            self._observer.held(self)
        if held_since is not None:
            self._held_since[ticket] = held_since
        try:
            if body is None:
                body = await self._read_body(request, ticket)
            else:
                self._add_bytes(ticket, len(body))
            return await self._send_until_answered(request, body, ticket, deadline)
        except _Moved as moved:
            successor = moved.to
        finally:
            held_since = self._held_since.pop(ticket, None)
            self.queue.remove(ticket)
            self._dispatch()
            if not len(self.queue):
                self._cold_since = None
            self._observer.queue_changed(self)
        return await successor.forward(request, body, deadline, held_since)

    def _admit(self) -> int:
        ticket = next(self._tickets)
        if refusal := self.queue.admit(ticket):
            raise _Refused(refusal)
        self.last_request = clock.now().timestamp()
        if self._cold_since is None and not self.queue.replicas:
            self._cold_since = self.last_request
        self._observer.queue_changed(self)
        return ticket

    def _add_bytes(self, ticket: int, size: int) -> None:
        if refusal := self.queue.add_bytes(ticket, size):
            raise _Refused(refusal)

    async def _read_body(self, request: web.BaseRequest, ticket: int) -> bytes:
        chunks = []
        while chunk := await request.content.readany():
            self._add_bytes(ticket, len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def _send_until_answered(
        self, request: web.BaseRequest, body: bytes, ticket: int, deadline: asyncio.Timeout
    ) -> aiohttp.ClientResponse:
        attempts, when = 0, deadline.when()
        while True:
            replica = await self._wait_for_replica(ticket)
            deadline.reschedule(None)
            try:
                return await self._send(request, body, replica)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                log.info("%s: %s", self.name, error)
            except (aiohttp.ClientError, ConnectionError) as error:
                attempts += 1
                log.info("%s: %s did not answer: %r", self.name, replica, error)
                if attempts >= self._settings.attempts:
                    raise _Refused(REPLICA_FAILED) from error
            deadline.reschedule(when)
            self.queue.mark_failed(ticket)
            if self._end is not None:
                raise self._end()
            await asyncio.sleep(self._settings.retry_seconds)

    async def _wait_for_replica(self, ticket: int) -> Endpoint:
        if self._end is not None and not self.queue.replicas:
            raise self._end()
        turn: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
        self._turns[ticket] = turn
        try:
            self.queue.submit(ticket)
            self._dispatch()
            return await turn
        finally:
            del self._turns[ticket]

    async def _send(self, request: web.BaseRequest, body: bytes, replica: Endpoint) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(f"http://{host_of(replica)}{request.raw_path}", encoded=True),
            headers=_forwarded(request.headers, drop=_BODY_HEADERS),
            data=body or None,
            allow_redirects=False,
            skip_auto_headers=_NO_DEFAULTS,
        )

    def _dispatch(self) -> None:
        for ticket, replica in self.queue.dispatch():
            turn = self._turns.get(ticket)
            if turn is None or turn.done():
                self.queue.remove(ticket)
                continue
            turn.set_result(replica)
            if (held_since := self._held_since.pop(ticket, None)) is not None:
                self._observer.released(self, clock.monotonic() - held_since)
            if self._cold_since is not None:
                self._observer.woken(self, replica, self._cold_since)
                self._cold_since = None

    def _error(self, refusal: Refusal) -> web.Response:
        """Return the response to a refused request, in JSON as the gateway's own errors."""
        status = {BODY_TOO_LARGE: 413, REPLICA_FAILED.reason: 502}.get(refusal.reason, 503)
        headers = {"Retry-After": str(self._settings.retry_after_seconds)} if status == 503 else {}
        return web.json_response(
            {"error": f"{self.name}: {refusal.message}", "reason": refusal.reason},
            status=status,
            headers=headers,
        )


class Listener:
    """The socket to which Envoy sends one backend's requests."""

    def __init__(self, backend: HeldBackend, path: Path, settings: ActivatorSettings) -> None:
        server = web.Server(
            backend.handle,
            handler_cancellation=True,  # a hang-up shows only on the connection
            auto_decompress=False,
            access_log=None,
            # Envoy has limits of its own; these must not be lower.
            max_line_size=65_536,
            max_field_size=65_536,
        )
        self.backend = backend
        self._runner = web.ServerRunner(server, shutdown_timeout=_DRAIN_SECONDS)
        self._path = path
        self._backlog = settings.backlog

    async def open(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.UnixSite(self._runner, self._path, backlog=self._backlog).start()

    async def close(self) -> None:
        """Stop listening, and wait for the answers in flight."""
        self._path.unlink(missing_ok=True)
        await self._runner.cleanup()


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
