"""An engine with OpenAI's API that streams at a steady pace, as a process: the same work for every proxy.

    python stream_engine.py PORT [EVERY]

A request's `max_tokens` is the number of its tokens. The first comes after FIRST_SECONDS, each further one
EVERY seconds later (5 ms by default), as an event of its own.
"""

import asyncio
import gc
import json
import sys

FIRST_SECONDS = 0.02
EVERY_SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.005
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHOICES = '[{"index":0,"delta":{"content":" word"},"finish_reason":null}]'
_PART = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":' + _CHOICES + "%s}"
_USAGE = ',"usage":{"prompt_tokens":100,"completion_tokens":%d,"total_tokens":%d}'


def chunk(document: str) -> bytes:
    event = f"data: {document}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


class StreamEngine(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        if len(body) < length:
            return
        self._received = body[length:]
        self._answer(json.loads(body[:length] or b"{}"))

    def _answer(self, request: dict[str, object]) -> None:
        options = request.get("stream_options") or {}
        assert isinstance(options, dict)
        number = int(str(request.get("max_tokens", 16)))
        loop = asyncio.get_running_loop()
        last = FIRST_SECONDS + number * EVERY_SECONDS
        for index in range(number):
            usage = _USAGE % (index + 1, index + 101) if options.get("continuous_usage_stats") else ""
            part = HEAD * (index == 0) + chunk(_PART % usage)
            loop.call_later(FIRST_SECONDS + index * EVERY_SECONDS, self._transport.write, part)
        final = b""
        if options.get("include_usage"):
            final = chunk('{"choices":[]%s}' % (_USAGE % (number, number + 100)))
        loop.call_later(last, self._transport.write, final + chunk("[DONE]") + b"0\r\n\r\n")


async def main() -> None:
    gc.disable()  # a collection would delay tokens
    server = await asyncio.get_running_loop().create_server(
        StreamEngine, "127.0.0.1", int(sys.argv[1]), backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
