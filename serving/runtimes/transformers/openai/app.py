"""Serves OpenAI's API over ASGI, with the health paths of the Open Inference Protocol and a metrics page."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson

from serving import clock, errors
from serving.runtimes import request_body
from serving.runtimes.large_requests import BodyRoom, LargeRequests, too_many
from serving.runtimes.request_body import Receive
from serving.runtimes.served_model import ServedModel
from serving.runtimes.transformers.engine import Generation, GenerationEngine
from serving.runtimes.transformers.generation import GenerationRequest, Part
from serving.runtimes.transformers.openai import requests, responses
from serving.runtimes.transformers.openai.requests import ChatBody, CompletionBody, Streaming
from serving.runtimes.transformers.openai.responses import Chat, Completion
from serving.runtimes.transformers.vocabulary import SMALL_TEXT, Vocabulary
from serving.settings import RuntimeSettings

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Kind = TypeVar("Kind", Chat, Completion)

_JSON, _EVENTS, _TEXT = "application/json", "text/event-stream", "text/plain; version=0.0.4"
_MODEL_FAILED = "the model failed; see its log"
_READY = re.compile(r"/v2/models/([^/]+)/ready")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Prepared:
    """The parts of a request's body that its answer needs; the body, which may be much larger, is dropped."""

    request: GenerationRequest
    answer: Chat | Completion
    streaming: Streaming | None


class OpenAiApp:
    """One language model behind OpenAI's paths."""

    def __init__(
        self,
        engine: GenerationEngine,
        vocabulary: Vocabulary,
        served: ServedModel,
        settings: RuntimeSettings,
        context: int,
        *,
        large: LargeRequests,
    ) -> None:
        """Take the limits of requests.

        Args:
            engine: generates the answers.
            vocabulary: of the model.
            served: its name, and the state of its server.
            settings: bounds of bodies, and Retry-After.
            context: tokens of a prompt and its answer together, at most.
            large: the memory and the thread for bodies that are not small.
        """
        self._large = large
        self._body_limit = min(settings.max_body_bytes, large.memory.bodies)
        self._engine, self._vocabulary = engine, vocabulary
        self._served, self._settings, self._context = served, settings, context
        self._created = int(clock.now().timestamp())

    def drain(self) -> None:
        """Report not ready from now on; called when the process stops."""
        self._served.draining = True

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        self._served.in_flight += 1
        try:
            await self._answer(scope["method"], scope["path"].rstrip("/"), receive, send)
        except errors.NotFound as error:
            await self._send_error(send, 404, error.message, "model_not_found")
        except errors.ApiError as error:
            await self._send_error(send, error.code, error.message)
        except errors.Temporary as error:
            code = "engine_full" if error.reason == "EngineFull" else None
            await self._send_error(send, requests.TOO_MANY, str(error), code)
        except Exception:  # noqa: BLE001 whatever the model raised, the client gets OpenAI's error
            _log.exception("%s %s failed", scope["method"], scope["path"])
            await self._send_error(send, 500, _MODEL_FAILED)
        finally:
            self._served.in_flight -= 1

    async def _answer(self, method: str, path: str, receive: Receive, send: Send) -> None:
        """Answer one request; raise the errors that `__call__` turns into answers."""
        match (method, path):
            case ("POST", "/v1/chat/completions"):
                await self._generate(await self._prepared(self._chat, receive), receive, send)
            case ("POST", "/v1/completions"):
                await self._generate(await self._prepared(self._completion, receive), receive, send)
            case ("GET", "/v1/models"):
                await self._send(send, 200, {"object": "list", "data": [self._model()]})
            case ("GET", "/v2/health/live"):
                await self._live(send)
            case ("GET", "/v2/health/ready"):
                await self._ready(send)
            case ("GET", "/metrics"):
                await self._send(send, 200, self._engine.page(), _TEXT)
            case ("GET", _) if match := _READY.fullmatch(path):
                self._check_model(match[1])
                await self._ready(send)
            case ("GET", _) if path.startswith("/v1/models/"):
                self._check_model(path.removeprefix("/v1/models/"))
                await self._send(send, 200, self._model())
            case _:
                await request_body.discard(receive)
                raise errors.ApiError(404, "NotFound", f"no such path: {method} {path}")

    async def _live(self, send: Send) -> None:
        if obstacle := self._engine.obstacle(clock.monotonic()):
            await self._send_error(send, 503, obstacle)
            return
        await self._send(send, 200, {"live": True})

    async def _ready(self, send: Send) -> None:
        obstacle = "stopping" if self._served.draining else self._engine.obstacle(clock.monotonic())
        if obstacle:
            await self._send_error(send, 503, obstacle)
            return
        document = {"name": self._served.name, "ready": True}
        await self._send(send, 200, document, headers=self._served.startup.headers())

    def _model(self) -> Mapping[str, Any]:
        return {
            "id": self._served.name,
            "object": "model",
            "created": self._created,
            "owned_by": "slipway",
            "max_model_len": self._context,
        }

    def _check_model(self, model: str) -> None:
        if model != self._served.name:
            raise errors.NotFound(404, "NotFound", f"model: must be {self._served.name!r}, got {model!r}")

    async def _prepared(self, prepare: Callable[[bytes], _Prepared], receive: Receive) -> _Prepared:
        """Read a request's body, and prepare it: on the worker thread if it is larger than `SMALL_TEXT`."""
        room = BodyRoom(self._large)
        try:
            body = await self._body(receive, room)
            self._engine.check_room()
            is_small = len(body) <= SMALL_TEXT
            return prepare(body) if is_small else await self._large.run(partial(prepare, body))
        finally:
            room.release()

    async def _body(self, receive: Receive, room: BodyRoom) -> bytes:
        """Return the complete body; one of more than `SMALL_TEXT` bytes is counted in `room`."""
        chunks: list[bytes] = []
        size, has_more, has_room = 0, True, True
        while has_more:
            part, has_more = request_body.part(await receive())
            size += len(part)
            if size > self._body_limit:
                if has_more:
                    chunks.clear()
                    room.release()
                    await request_body.discard(receive)
                rule = f"body: must be at most {self._body_limit} bytes"
                raise errors.ApiError(413, "RequestEntityTooLarge", rule)
            has_room = has_room and (size <= SMALL_TEXT or room.grow(size))
            if has_room:
                chunks.append(part)
            else:  # read and dropped: Envoy resets a client that still sends when the answer comes
                chunks.clear()
                room.release()
        if not has_room:
            raise too_many(self._settings.retry_after_seconds)
        return b"".join(chunks)

    def _chat(self, data: bytes) -> _Prepared:
        body = requests.parse(ChatBody, data, self._large.memory.decoding)
        self._check_model(body.model)
        messages = [message.for_template() for message in body.messages]
        prompt = self._vocabulary.encode_chat(messages, self._context)
        request = self._request(body, prompt, "messages")
        return _Prepared(request, self._answer_writer(request, Chat, "chatcmpl"), body.streaming)

    def _completion(self, data: bytes) -> _Prepared:
        body = requests.parse(CompletionBody, data, self._large.memory.decoding)
        self._check_model(body.model)
        # A prompt is a text, a list of one text, or a list of tokens.
        text = body.prompt[0] if isinstance(body.prompt, list) and body.prompt else body.prompt
        if isinstance(text, str):
            prompt = self._vocabulary.encode(text, self._context)
        else:
            prompt = self._vocabulary.checked([token for token in body.prompt if isinstance(token, int)])
        request = self._request(body, prompt, "prompt")
        return _Prepared(request, self._answer_writer(request, Completion, "cmpl"), body.streaming)

    def _answer_writer(self, request: GenerationRequest, kind: type[Kind], prefix: str) -> Kind:
        """Return the writer of a request's answer; its id begins with `prefix`."""
        return kind(
            id=f"{prefix}-{uuid.uuid4().hex}",
            model=self._served.name,
            created=int(clock.now().timestamp()),
            prompt_tokens=len(request.prompt),
            token_bytes=self._vocabulary.token_bytes,
            has_logprobs=request.sampling.alternatives is not None,
        )

    def _request(
        self, body: ChatBody | CompletionBody, prompt: Sequence[int], field: str
    ) -> GenerationRequest:
        """Return the request for a prompt's tokens, whose length is checked; `field` names them in errors."""
        if not prompt:
            raise errors.ApiError(400, "BadRequest", f"{field}: must have at least one token")
        most = self._context - len(prompt)
        if most < 1:
            rule = f"must be less than {self._context} tokens"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {len(prompt)}")
        wanted = body.most_tokens
        if wanted is not None and wanted > most:
            rule = f"must be at most {most}, as the context has {self._context} tokens and the prompt"
            raise errors.ApiError(400, "BadRequest", f"max_tokens: {rule} {len(prompt)}, got {wanted}")
        tokens = wanted or min(most, body.default_tokens or most)
        return GenerationRequest(prompt, tokens, body.sampling, body.stops, ignore_end=body.ignore_eos)

    async def _generate(self, prepared: _Prepared, receive: Receive, send: Send) -> None:
        """Generate and send an answer; cancel the generation once its client is gone."""
        parts: asyncio.Queue[Part] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(part: Part) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its clients with it
                loop.call_soon_threadsafe(parts.put_nowait, part)

        generation = self._engine.submit(prepared.request, deliver)
        watch = asyncio.create_task(_disconnected(receive, generation, self._engine, parts))
        try:
            if prepared.streaming:
                await self._stream(parts, prepared.streaming, prepared.answer, send)
            else:
                await self._send_whole(parts, prepared.answer, send)
        finally:
            watch.cancel()
            self._engine.cancel(generation)

    async def _send_whole(self, parts: asyncio.Queue[Part], answer: Chat | Completion, send: Send) -> None:
        received = [part async for part in _until_end(parts)]
        last = received[-1]
        if last.finish == "cancelled":
            return
        if last.finish == "error":
            raise errors.ApiError(500, "InternalError", _MODEL_FAILED)
        text = "".join(part.text for part in received)
        choices = [choice for part in received for choice in part.choices]
        await self._send(send, 200, answer.whole(text, choices, last))

    async def _stream(
        self,
        parts: asyncio.Queue[Part],
        streaming: Streaming,
        answer: Chat | Completion,
        send: Send,
    ) -> None:
        """Send the parts as events; the response begins with the first of them."""
        begun = False
        async for part in _until_end(parts):
            if part.finish == "cancelled":
                return
            chunks = answer.chunks(part) if part.finish != "error" else []
            if not begun:
                if part.finish == "error":
                    raise errors.ApiError(500, "InternalError", _MODEL_FAILED)
                await send(_start(200, _EVENTS, ((b"cache-control", b"no-cache"), *self._closing())))
                begun = True
                chunks = [*answer.opening(), *chunks]
            if streaming.has_continuous_usage:
                chunks = [{**chunk, "usage": answer.usage(part.tokens)} for chunk in chunks]
            data = b"".join(map(responses.event, chunks))
            if part.finish == "error":
                data = responses.event(requests.error_document(500, _MODEL_FAILED))
            elif part.finish:
                if streaming.has_usage:
                    data += responses.event(answer.usage_chunk(part.tokens))
                data += responses.DONE
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _send(
        self,
        send: Send,
        status: int,
        document: Any,
        content_type: str = _JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        body = document if isinstance(document, bytes) else orjson.dumps(document)
        length = (b"content-length", str(len(body)).encode())
        await send(_start(status, content_type, (length, *headers, *self._closing())))
        await send({"type": "http.response.body", "body": body})

    async def _send_error(self, send: Send, status: int, message: str, code: str | None = None) -> None:
        retry = (
            ((b"retry-after", str(self._settings.retry_after_seconds).encode()),)
            if status in (requests.TOO_MANY, 503)
            else ()
        )
        document = requests.error_document(status, message, code)
        await self._send(send, status, document, headers=retry)

    def _closing(self) -> tuple[tuple[bytes, bytes], ...]:
        return ((b"connection", b"close"),) if self._served.draining else ()


def _start(status: int, content_type: str, headers: tuple[tuple[bytes, bytes], ...]) -> Message:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-type", content_type.encode()), *headers],
    }


async def _until_end(parts: asyncio.Queue[Part]) -> AsyncIterator[Part]:
    """Yield parts; those that wait together are joined, as one write costs less than several."""
    while True:
        waiting = [await parts.get()]
        while not parts.empty() and not waiting[-1].finish:
            waiting.append(parts.get_nowait())
        last = waiting[-1]
        yield Part(
            "".join(part.text for part in waiting),
            tuple(choice for part in waiting for choice in part.choices),
            last.tokens,
            last.finish,
        )
        if last.finish:
            return


async def _disconnected(
    receive: Receive, generation: Generation, engine: GenerationEngine, parts: asyncio.Queue[Part]
) -> None:
    """Cancel a generation when its client disconnects, and end the wait for its parts."""
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
        engine.cancel(generation)
        parts.put_nowait(Part("", finish="cancelled"))
