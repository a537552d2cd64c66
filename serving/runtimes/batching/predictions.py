"""Answers requests by predictions: one per request, or one for several requests.

Short predictions run on the event loop and long ones on the only worker thread. `batch_queue` chooses the
requests of a batch and `batches` joins them.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from serving import clock, errors
from serving.runtimes.batching import batches
from serving.runtimes.batching.batch_queue import BatchQueue
from serving.runtimes.batching.batches import Outputs
from serving.runtimes.model import LoadedModel
from serving.runtimes.open_inference.protocol import InferenceRequest
from serving.runtimes.request_body import Receive
from serving.settings import RuntimeSettings

_log = logging.getLogger(__name__)


class Predictions(Protocol):
    """Answers the requests of a replica."""

    async def infer(self, request: InferenceRequest, receive: Receive) -> Outputs:
        """Return the requested outputs.

        Args:
            request: decoded, not yet compared with the model's inputs.
            receive: of ASGI, after the end of the request; it returns when the client disconnects.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
            errors.Temporary: too many requests wait.
        """

    def hurry(self) -> None:
        """Stop waiting for further requests, as the process stops."""


class SinglePredictions:
    """Answers each request by a prediction of its own."""

    def __init__(self, model: LoadedModel, settings: RuntimeSettings, worker: Executor) -> None:
        self._model = model
        self._settings = settings
        self._worker = worker
        self._unanswered = 0
        """Requests whose client is connected: those that wait for the worker, and the one being predicted."""

    async def infer(self, request: InferenceRequest, receive: Receive) -> Outputs:
        """Return the requested outputs."""
        if self._model.expected_seconds(request) <= self._settings.inline_seconds:
            return self._model.infer(request)
        if self._unanswered > self._settings.waiting:
            raise _too_many(self._unanswered - 1, self._settings)  # one is being predicted
        loop = asyncio.get_running_loop()
        self._unanswered += 1
        running = loop.run_in_executor(self._worker, _inferred, self._model, request)
        leaving = loop.create_task(_disconnected(receive))
        try:
            await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise _client_left()
            return running.result()
        finally:
            self._unanswered -= 1
            running.cancel()  # a worker that has not begun the prediction then skips it
            leaving.cancel()

    def hurry(self) -> None:
        """Do nothing: no request waits for others."""


@dataclass
class _Entry:
    """A request that waits or is in a prediction."""

    request: InferenceRequest
    rows: int
    receive: Receive
    answer: asyncio.Future[Outputs]
    disconnection: asyncio.Task[None] | None = None
    """Waits for the client's disconnection; None for a request that was predicted without waiting."""


class BatchedPredictions:
    """Answers all requests that arrive during a prediction and can be joined by the next prediction."""

    def __init__(
        self, model: LoadedModel, settings: RuntimeSettings, worker: Executor, queue: BatchQueue
    ) -> None:
        self._model = model
        self._settings = settings
        self._worker = worker
        self._queue = queue
        self._tickets = count()
        self._entries: dict[int, _Entry] = {}
        """By ticket."""
        self._new: list[int] = []
        """Tickets of the requests since the last look at the queue."""
        self._next_look: asyncio.Handle | None = None
        """The look in the next round of the event loop."""
        self._due_look: asyncio.TimerHandle | None = None
        """The look at the time at which a batch is due that is not full."""
        self._requests_answered = 0
        self._predictions_made = 0

    async def infer(self, request: InferenceRequest, receive: Receive) -> Outputs:
        """Return the requested outputs."""
        rows, form = batches.form(request, self._model)
        ticket = next(self._tickets)
        if form is None:
            form = ticket  # of no other request
        if not self._queue.enter(ticket, rows, form, clock.monotonic()):
            raise _too_many(len(self._queue), self._settings)
        entry = _Entry(request, rows, receive, asyncio.get_running_loop().create_future())
        self._entries[ticket] = entry
        self._new.append(ticket)
        self._look_soon()
        try:
            return await entry.answer
        finally:
            self._queue.leave(ticket)
            del self._entries[ticket]
            if entry.disconnection is not None:
                entry.disconnection.cancel()

    def hurry(self) -> None:
        """Stop waiting for further requests."""
        _log.info(
            "%d requests so far were answered by %d predictions",
            self._requests_answered,
            self._predictions_made,
        )
        self._queue.hurry()
        self._look_soon()

    def _look_soon(self) -> None:
        # Not at once, so that further requests that the event loop has read get into the same batch.
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Start the next batch if it is due, else look again when it will be."""
        self._next_look = None
        if self._due_look is not None:
            self._due_look.cancel()
            self._due_look = None
        batch = self._queue.take(clock.monotonic())
        loop = asyncio.get_running_loop()
        for ticket in self._new:
            if ticket in self._queue:  # a request in the batch needs no task for its client's disconnection
                entry = self._entries[ticket]
                entry.disconnection = loop.create_task(self._leave_when_gone(entry, ticket))
        self._new.clear()
        if batch:
            self._start([self._entries[ticket] for ticket in batch])
        elif (due := self._queue.due()) is not None:
            self._due_look = loop.call_later(max(0.0, due - clock.monotonic()), self._look)

    def _start(self, batch: Sequence[_Entry]) -> None:
        """Predict a batch: at once if that takes little time, else on the worker."""
        requests = [entry.request for entry in batch]
        if sum(map(self._model.expected_seconds, requests)) <= self._settings.inline_seconds:
            self._finish(batch, _predict(self._model, requests))
            return
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._worker, _predict, self._model, requests)
        running.add_done_callback(lambda future: self._finish(batch, future.result()))

    def _finish(self, batch: Sequence[_Entry], outcome: "_Outcome") -> None:
        try:
            self._answer(batch, outcome)
        finally:
            self._queue.done()
            self._look_soon()

    def _answer(self, batch: Sequence[_Entry], outcome: "_Outcome") -> None:
        for entry, answer in zip(batch, outcome.answers, strict=True):
            if entry.answer.done():  # the client has left, or the request was cancelled
                continue
            if isinstance(answer, Exception):
                entry.answer.set_exception(answer)
            else:
                entry.answer.set_result(answer)
        if outcome.unjoinable is not None:
            rows = sum(entry.rows for entry in batch)
            self._queue.shrink(rows)
            _log.warning(
                "%d rows of %d requests fail together and not alone; batches have at most %d rows now: %r",
                rows,
                len(batch),
                self._queue.size,
                outcome.unjoinable,
            )
        self._requests_answered += len(batch)
        self._predictions_made += outcome.predictions

    async def _leave_when_gone(self, entry: _Entry, ticket: int) -> None:
        """Take a request out of the queue when its client disconnects."""
        await _disconnected(entry.receive)
        self._queue.leave(ticket)
        if not entry.answer.done():
            entry.answer.set_exception(_client_left())


async def _disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _client_left() -> errors.ApiError:
    return errors.ApiError(400, "BadRequest", "the client disconnected before its turn")


def _too_many(waiting: int, settings: RuntimeSettings) -> errors.Temporary:
    return errors.Temporary(
        "TooManyWaiting", f"{waiting} requests already wait", settings.retry_after_seconds
    )


@dataclass(frozen=True)
class _Outcome:
    """The result of a batch."""

    answers: Sequence[Outputs | Exception]
    """One per request, in order."""
    predictions: int
    """Calls of the model."""
    unjoinable: Exception | None = None
    """The failure of the joined request where each request alone succeeded."""


def _predict(model: LoadedModel, requests: Sequence[InferenceRequest]) -> _Outcome:
    """Answer the requests by one prediction or, if that fails, by a prediction for each."""
    if len(requests) == 1:
        return _Outcome([_alone(model, requests[0])], 1)
    try:
        answer = model.infer(batches.joined(requests, model))
        return _Outcome(batches.split(answer, requests, model), 1)
    except Exception as error:  # noqa: BLE001 whatever the model raises may be one request's fault
        answers = [_alone(model, request) for request in requests]
        failed = any(isinstance(answer, Exception) for answer in answers)
        return _Outcome(answers, 1 + len(requests), None if failed else error)


def _alone(model: LoadedModel, request: InferenceRequest) -> Outputs | Exception:
    try:
        return _inferred(model, request)
    except Exception as error:  # noqa: BLE001 raised again where the request is answered
        return error


def _inferred(model: LoadedModel, request: InferenceRequest) -> Outputs:
    """Return the model's answer, for a future, which would take no StopIteration as its error (PEP 479)."""
    try:
        return model.infer(request)
    except StopIteration as error:
        raise RuntimeError(f"the model raised {error!r}") from error
