"""Holds one backend's requests, of either protocol, until a replica is free.

A request that no replica accepted is retried until its deadline; a request that a replica accepted and
did not answer is retried as the Route's retry policy allows. A request whose client has hung up is dropped.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from serving import clock, errors
from serving.router.activator.request_queue import BODY_TOO_LARGE, QueueTotals, Refusal, RequestQueue
from serving.router.plan.policy import RetryPolicy
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

log = logging.getLogger(__name__)

DRAIN_SECONDS = 300.0
"""Longest wait for answers in flight when a backend is gone: the gateway's own limit for a silent stream."""
RETRY_SECONDS = 0.05
"""Between attempts at a request when no other replica is ready."""

NO_REPLICA = Refusal("NoReplicaInTime", "no replica was ready in time")
GONE = Refusal("BackendGone", "this predictor was removed")
STOPPING = Refusal("ActivatorStopping", "the activator is stopping")
REPLICA_FAILED = Refusal("ReplicaFailed", "the replica did not answer")

REQUEST_NOT_UTF8, ANSWER_NOT_UTF8 = "RequestNotUtf8", "AnswerNotUtf8"
"""Reasons: a request, or an answer, has bytes that cannot be forwarded."""
_HTTP_STATUSES = {
    BODY_TOO_LARGE: 413,
    REPLICA_FAILED.reason: 502,
    REQUEST_NOT_UTF8: 400,
    ANSWER_NOT_UTF8: 502,
}
"""By reason; 503 for the others."""

Answer_co = TypeVar("Answer_co", covariant=True)
Answer = TypeVar("Answer")


class HeldRequest(Protocol[Answer_co]):
    """A request of one protocol."""

    async def read(self, add_bytes: Callable[[int], None]) -> None:
        """Read the parts for a replica, before the request waits; `add_bytes` counts the bytes in memory.

        Raises:
            Refused: the request cannot be forwarded.
        """

    @property
    def size(self) -> int:
        """Bytes that it holds in memory."""

    async def send(self, replica: Endpoint) -> Answer_co:
        """Return the replica's answer, which has begun.

        Raises:
            NotConnected: the replica has not got the request.
            NotAnswered: the replica may have got it, and it can be sent again.
            Refused: the answer cannot be forwarded.
        """


class NotConnected(errors.SlipwayError):
    """The replica cannot be reached."""


class NotAnswered(errors.SlipwayError):
    """The replica did not answer."""


class Refused(errors.SlipwayError):
    """The request is answered with an error of the activator."""

    def __init__(self, backend: str, refusal: Refusal) -> None:
        super().__init__(f"{backend}: {refusal.message}")
        self.reason = refusal.reason

    @property
    def http_status(self) -> int:
        """Status of the response over HTTP."""
        return _HTTP_STATUSES.get(self.reason, 503)


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
    """A replica gets the first request after a time without replicas; the last argument is that request's
    arrival in Unix seconds."""
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
        observer: RequestObserver,
    ) -> None:
        self.name = name
        self.queue = RequestQueue(settings, totals)
        self.last_request = 0.0
        """Arrival of the last request, in Unix seconds."""
        self._settings = settings
        self._observer = observer
        self._retries = RetryPolicy()
        self._tickets = itertools.count()
        self._turns: dict[int, asyncio.Future[Endpoint]] = {}
        """By ticket of a waiting request: the replica that it gets, once it is its turn."""
        self._held_since: dict[int, float] = {}
        """Monotonic arrival times of tickets that arrived without a ready replica and still have none."""
        self._cold_since: float | None = None
        """Arrival, in Unix seconds, of the first request that came without a ready replica, until a replica
        gets a request; None if there is none."""
        self._end: Callable[[], errors.SlipwayError] | None = None
        """Makes the error for waiting requests, once this backend is gone."""

    def set_replicas(self, replicas: Iterable[Endpoint]) -> None:
        """Replace the ready replicas."""
        self.queue.set_replicas(replicas)
        self._dispatch()

    def set_retries(self, retries: RetryPolicy) -> None:
        """Replace the policy for requests that a replica accepted and did not answer."""
        self._retries = retries

    def end(self, successor: "HeldBackend | None", refusal: Refusal = GONE) -> None:
        """Move waiting requests to the successor, or refuse them; a request that has a replica keeps it.

        Ready replicas still take the waiting requests, unless the activator stops; a request that they do not
        accept moves then.
        """
        self._end = (
            partial(_Moved, successor) if successor is not None else partial(Refused, self.name, refusal)
        )
        if not self.queue.replicas or refusal is STOPPING:
            for turn in self._turns.values():
                if not turn.done():
                    turn.set_exception(self._end())

    async def hold(self, request: HeldRequest[Answer]) -> Answer:
        """Hold a request and send it; return the replica's answer, which has begun.

        Raises:
            Refused: no replica answers it.
        """
        arrived = clock.monotonic()
        try:
            async with asyncio.timeout(self._settings.deadline_seconds) as deadline:
                answer = await self._forward(request, deadline)
        except TimeoutError:
            self._observer.refused(NO_REPLICA.reason)
            raise Refused(self.name, NO_REPLICA) from None
        except Refused as refused:
            self._observer.refused(refused.reason)
            raise
        self._observer.answered(clock.monotonic() - arrived)
        return answer

    async def _forward(
        self,
        request: HeldRequest[Answer],
        deadline: asyncio.Timeout,
        held_since: float | None = None,
        *,
        moved: bool = False,
    ) -> Answer:
        """Return the replica's answer, which has begun.

        Args:
            request: from Envoy.
            deadline: of the wait for a replica; it is off while a replica works.
            held_since: monotonic arrival time at another backend, if no replica has had the request yet.
            moved: whether another backend held the request before.
        """
        ticket = self._admit()
        if not moved and not self.queue.replicas:
            held_since = clock.monotonic()
            self._observer.held(self)
        if held_since is not None:
            self._held_since[ticket] = held_since
        try:
            if moved:  # the other backend has read the body
                self._add_bytes(ticket, request.size)
            else:
                await request.read(partial(self._add_bytes, ticket))
            return await self._send_until_answered(request, ticket, deadline)
        except _Moved as error:
            successor = error.to
        finally:
            held_since = self._held_since.pop(ticket, None)  # None once a replica has had the request
            self.queue.remove(ticket)
            self._dispatch()
            if not len(self.queue):
                self._cold_since = None
            self._observer.queue_changed(self)
        return await successor._forward(request, deadline, held_since, moved=True)  # noqa: SLF001 same class

    def _admit(self) -> int:
        ticket = next(self._tickets)
        if refusal := self.queue.admit(ticket):
            raise Refused(self.name, refusal)
        self.last_request = clock.now().timestamp()
        if self._cold_since is None and not self.queue.replicas:
            self._cold_since = self.last_request
        self._observer.queue_changed(self)
        return ticket

    def _add_bytes(self, ticket: int, size: int) -> None:
        if refusal := self.queue.add_bytes(ticket, size):
            raise Refused(self.name, refusal)

    async def _send_until_answered(
        self, request: HeldRequest[Answer], ticket: int, deadline: asyncio.Timeout
    ) -> Answer:
        lost = 0  # attempts that a replica accepted and did not answer
        expires_at = deadline.when()
        while True:
            replica = await self._wait_for_replica(ticket)
            deadline.reschedule(None)  # it limits the wait for a replica, not for the answer
            try:
                return await request.send(replica)
            except NotConnected as error:
                log.info("%s: %s", self.name, error)
            except NotAnswered as error:
                lost += 1
                log.info("%s: %s did not answer: %s", self.name, replica, error)
                if not self._may_repeat(lost):
                    self.queue.mark_failed(ticket)
                    raise Refused(self.name, REPLICA_FAILED) from error
            deadline.reschedule(expires_at)
            self.queue.mark_failed(ticket)
            if self._end is not None:
                raise self._end()
            await asyncio.sleep(RETRY_SECONDS)

    def _may_repeat(self, lost: int) -> bool:
        """Return whether a request is sent again after `lost` attempts without an answer."""
        repeats = self._settings.attempts - 1 if self._retries.attempts is None else self._retries.attempts
        return "Lost" in self._retries.causes and lost <= repeats

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

    def _dispatch(self) -> None:
        for ticket, replica in self.queue.dispatch():
            turn = self._turns.get(ticket)
            if turn is None or turn.done():  # moved, refused or cancelled; its task has not run since
                self.queue.remove(ticket)
                continue
            turn.set_result(replica)
            if (held_since := self._held_since.pop(ticket, None)) is not None:
                self._observer.released(self, clock.monotonic() - held_since)
            if self._cold_since is not None:
                self._observer.woken(self, replica, self._cold_since)
                self._cold_since = None
