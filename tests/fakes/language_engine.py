"""An inference engine with OpenAI's API whose tokens come when a test wants them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson
from aiohttp import web

PROMPT_TOKENS = 7


class LanguageEngine:
    """Answers `w0 w1 ...`; `max_tokens` of them."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.queries: list[str] = []
        """Query string of each request."""
        self.lengths: list[int | None] = []
        """Header content-length of each request."""
        self.released = asyncio.Event()
        """Every answer waits for it before its first token."""
        self.released.set()
        self.stop_after: int | None = None
        """Tokens after which a stream says nothing more, and stays open; an answer that is not streamed then
        stops in its middle."""
        self.abort_after: int | None = None
        """Tokens after which a stream's connection ends."""
        self.pause_seconds = 0.0
        """Between two tokens."""
        self.generated = 0
        self.streams = 0
        """Streams that are open."""
        self.splits_events = False
        self.compresses: Literal["never", "if allowed", "always"] = "never"
        self.raw: bytes | None = None
        """The body of every stream, with its length in a header."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.requests.append(body)
        self.queries.append(request.query_string)
        self.lengths.append(request.content_length)
        await self.released.wait()
        number = int(body.get("max_tokens", 16))
        if not body.get("stream"):
            self.generated += number
            text = 'say "usage":{"completion_tokens":99}'
            answer = {"choices": [{"message": {"content": text}}], "usage": usage(number)}
            response = web.json_response(answer)
            self._compress(response)
            return response if self.stop_after is None else await self._send_half(request, answer)
        self.streams += 1
        try:
            return await self._stream(request, body.get("stream_options") or {}, number)
        finally:
            self.streams -= 1

    async def _stream(self, request: web.Request, options: dict[str, Any], number: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        if self.raw is not None:
            response.content_length = len(self.raw)
        self._compress(response)
        await response.prepare(request)
        if self.raw is not None:
            await response.write(self.raw)
            return response
        await self._send(response, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for index in range(number):
            if index == self.stop_after:
                await asyncio.Event().wait()
            if index == self.abort_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            part: dict[str, Any] = {"choices": [{"delta": {"content": f'"w{index} '}}]}
            if options.get("continuous_usage_stats"):
                part["usage"] = usage(index + 1)
            await self._send(response, part)
            self.generated += 1
            await asyncio.sleep(self.pause_seconds)
        if options.get("include_usage"):
            await self._send(response, {"choices": [], "usage": usage(number)})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _send_half(self, request: web.Request, document: Any) -> web.StreamResponse:
        body = orjson.dumps(document)
        response = web.StreamResponse()
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        await asyncio.Event().wait()
        return response

    def _compress(self, response: web.StreamResponse) -> None:
        if self.compresses != "never":
            response.enable_compression(web.ContentCoding.gzip if self.compresses == "always" else None)

    async def _send(self, response: web.StreamResponse, document: Any) -> None:
        event = b"data: " + orjson.dumps(document) + b"\n\n"
        half = len(event) // 2
        for part in (event[:half], event[half:]) if self.splits_events else (event,):
            await response.write(part)
            await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[None]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/{_:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            yield
        finally:
            await runner.cleanup()


def usage(generated: int) -> dict[str, int]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": generated,
        "total_tokens": PROMPT_TOKENS + generated,
    }
