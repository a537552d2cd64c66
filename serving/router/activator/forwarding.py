"""Holds one backend's requests until their turns, and sends each to its replica: HTTP/1.1 in and out, answers streamed.

Bodies are held in memory and sent whole; HTTP/2 and gRPC are not for this way. A request that could not be handed over
is tried again until its deadline; one whose client has hung up is forgotten.
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
from serving.router.activator.request_queue import BODY_TOO_LARGE, Line, Refusal, Total
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

log = logging.getLogger(__name__)

_OF_ONE_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
"""RFC 9110 section 7.6.1; what `Connection` names is too."""
_OF_THE_BODY = frozenset({"content-length", "expect"})
"""Of a request: its body is sent whole, and `Expect` was answered by Envoy."""
_NOT_MADE_UP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_DRAIN_SECONDS = 300.0
"""Longest wait for answers on their way when a backend has gone: the gateway's own limit for a silent stream."""

NO_REPLICA = Refusal("NoReplicaInTime", "no replica was ready in time")
GONE = Refusal("BackendGone", "this predictor is no longer there")
STOPPING = Refusal("ActivatorStopping", "what holds this request is being stopped")
REPLICA_FAILED = Refusal("ReplicaFailed", "the replica did not answer")


class _Refused(errors.SlipwayError):
    """The answer is an error of ours."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Moved(errors.SlipwayError):
    """The request goes on waiting elsewhere."""

    def __init__(self, to: "Backend") -> None:
        super().__init__(to.name)
        self.to = to


@dataclass(frozen=True)
class Watcher:
    """Who is told what happens to the requests."""

    changed: Callable[["Backend"], None]
    """More or fewer of them wait."""
    woken: Callable[["Backend", Endpoint, float], None]
    """The first was sent to this replica after there was none; unix seconds of when that was held."""
    waited: Callable[[float], None]
    """One was answered, or began to be, after so many seconds."""
    refused: Callable[[str], None]
    """One was refused, for this reason."""
    held: Callable[["Backend"], None]
    """One came, and no replica was ready."""
    released: Callable[["Backend", float], None]
    """Such a one goes to a replica, after so many seconds."""


class Backend:
    """One backend's requests, and its replicas."""

    def __init__(
        self, name: str, settings: ActivatorSettings, total: Total, session: aiohttp.ClientSession,
        watcher: Watcher,
    ) -> None:  # fmt: skip
        """Args: session: of connections to replicas, whose bodies it must not decode."""
        self.name = name
        self.line = Line(settings, total)
        self.last_request = 0.0
        """When one last came; unix seconds."""
        self._settings = settings
        self._session = session
        self._watcher = watcher
        self._tickets = itertools.count()
        self._turns: dict[int, asyncio.Future[Endpoint]] = {}
        self._met_cold: dict[int, float] = {}
        """When tickets came that no replica was ready for, until they have one; monotonic seconds."""
        self._cold_since: float | None = None
        self._end: Callable[[], errors.SlipwayError] | None = None
        """Makes what is raised to those that wait, once this backend is gone."""

    def aim(self, replicas: Iterable[Endpoint]) -> None:
        """Know these replicas as ready, and no others."""
        self.line.aim(replicas)
        self._hand_out()

    def end(self, successor: "Backend | None", why: Refusal = GONE) -> None:
        """Have what waits go on waiting at the successor, or be refused; what has a replica keeps it."""
        self._end = partial(_Moved, successor) if successor is not None else partial(_Refused, why)
        if not self.line.replicas or why is STOPPING:
            for turn in self._turns.values():
                if not turn.done():
                    turn.set_exception(self._end())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Hold a request, send it, and pass the answer on."""
        arrived = clock.monotonic()
        try:
            try:
                async with asyncio.timeout(self._settings.deadline_seconds) as patience:
                    answer = await self.held(request, None, patience)
            except TimeoutError:
                raise _Refused(NO_REPLICA) from None
        except _Refused as refused:
            self._watcher.refused(refused.refusal.reason)
            return self._error(refused.refusal)
        self._watcher.waited(clock.monotonic() - arrived)
        async with answer:
            return await _pass_on(request, answer)

    async def held(
        self,
        request: web.BaseRequest,
        body: bytes | None,
        patience: asyncio.Timeout,
        cold: float | None = None,
    ) -> aiohttp.ClientResponse:
        """Return the beginning of the replica's answer. `patience` is with the wait for a replica, not with its work.

        Args:
            request: from Envoy.
            body: where another backend held it before, and has read it.
            patience: ends the wait.
            cold: when it came to that other backend, if it still waits for its first replica; monotonic seconds.
        """
        ticket = self._enter()
        if body is None and not self.line.replicas:
            cold = clock.monotonic()
            self._watcher.held(self)
        if cold is not None:
            self._met_cold[ticket] = cold
        try:
            if body is None:
                body = await self._read(request, ticket)
            else:
                self._grow(ticket, len(body))
            return await self._ask(request, body, ticket, patience)
        except _Moved as moved:
            elsewhere = moved.to
        finally:
            cold = self._met_cold.pop(ticket, None)
            self.line.leave(ticket)
            self._hand_out()
            self._note()
        return await elsewhere.held(request, body, patience, cold)

    def _enter(self) -> int:
        ticket = next(self._tickets)
        if refusal := self.line.enter(ticket):
            raise _Refused(refusal)
        self.last_request = clock.now().timestamp()
        if self._cold_since is None and not self.line.replicas:
            self._cold_since = self.last_request
        self._watcher.changed(self)
        return ticket

    def _grow(self, ticket: int, size: int) -> None:
        if refusal := self.line.grow(ticket, size):
            raise _Refused(refusal)

    async def _read(self, request: web.BaseRequest, ticket: int) -> bytes:
        pieces = []
        while piece := await request.content.readany():
            self._grow(ticket, len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    async def _ask(
        self, request: web.BaseRequest, body: bytes, ticket: int, patience: asyncio.Timeout
    ) -> aiohttp.ClientResponse:
        taken, deadline = 0, patience.when()
        while True:
            replica = await self._turn(ticket)
            patience.reschedule(None)
            try:
                return await self._send(request, body, replica)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                log.info("%s: %s", self.name, error)
            except (aiohttp.ClientError, ConnectionError) as error:
                taken += 1
                log.info("%s: %s did not answer: %r", self.name, replica, error)
                if taken >= self._settings.attempts:
                    raise _Refused(REPLICA_FAILED) from error
            patience.reschedule(deadline)
            self.line.failed(ticket)
            if self._end is not None:
                raise self._end()
            await asyncio.sleep(self._settings.retry_seconds)

    async def _turn(self, ticket: int) -> Endpoint:
        """Wait until it is this request's turn."""
        if self._end is not None and not self.line.replicas:
            raise self._end()
        turn: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
        self._turns[ticket] = turn
        try:
            self.line.ask(ticket)
            self._hand_out()
            return await turn
        finally:
            del self._turns[ticket]

    async def _send(self, request: web.BaseRequest, body: bytes, replica: Endpoint) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(f"http://{replica.address}:{replica.port}{request.raw_path}", encoded=True),
            headers=_passed(request.headers, but=_OF_THE_BODY),
            data=body or None,
            allow_redirects=False,
            skip_auto_headers=_NOT_MADE_UP,
        )

    def _hand_out(self) -> None:
        for ticket, replica in self.line.turns():
            turn = self._turns.get(ticket)
            if turn is None or turn.done():
                self.line.leave(ticket)
                continue
            turn.set_result(replica)
            if (came := self._met_cold.pop(ticket, None)) is not None:
                self._watcher.released(self, clock.monotonic() - came)
            if self._cold_since is not None:
                self._watcher.woken(self, replica, self._cold_since)
                self._cold_since = None

    def _note(self) -> None:
        if not len(self.line):
            self._cold_since = None
        self._watcher.changed(self)

    def _error(self, refusal: Refusal) -> web.Response:
        """Return the answer for a request that no replica answered; as the gateway's own, it is JSON."""
        status = {BODY_TOO_LARGE: 413, REPLICA_FAILED.reason: 502}.get(refusal.reason, 503)
        again = {"Retry-After": str(self._settings.retry_after_seconds)} if status == 503 else {}
        return web.json_response(
            {"error": f"{self.name}: {refusal.message}", "reason": refusal.reason},
            status=status,
            headers=again,
        )


class Listener:
    """The socket on which Envoy sends one backend's requests."""

    def __init__(self, backend: Backend, path: Path, settings: ActivatorSettings) -> None:
        server = web.Server(
            backend.handle,
            handler_cancellation=True,  # a client that hangs up is known by its connection only
            auto_decompress=False,
            access_log=None,
            # Envoy has its own limits; here they must not be lower.
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
        """Listen no more, and wait for the answers on their way."""
        self._path.unlink(missing_ok=True)
        await self._runner.cleanup()


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Stream a replica's answer as it comes."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_passed(answer.headers))
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


def _passed(headers: CIMultiDictProxy[str], but: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """Return the headers that go on to the next hop."""
    named = {name.strip().lower() for value in headers.getall("Connection", ()) for name in value.split(",")}
    dropped = _OF_ONE_HOP | named | but
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
