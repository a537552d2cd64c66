"""Streamed chats at a fixed rate, as a process; prints one JSON line with the times of all of them.

    python stream_load.py URL RATE SECONDS TOKENS

A time to the first token is counted from the moment at which a request was due.
"""

import asyncio
import gc
import json
import sys
import time
from urllib.parse import urlsplit

PROMPT = "the ship left the harbour with grain and came to the port in the evening of the third day " * 5
PATIENCE_SECONDS = 30.0


class Chat(asyncio.Protocol):
    """One connection, which is used again."""

    def __init__(self) -> None:
        self.first = 0.0
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: bytes) -> None:
        self.first, self._tail = 0.0, b""
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        if not self.first and b'"content"' in seen:
            self.first = time.monotonic()
        self._tail = seen[-32:]
        if seen.endswith(b"0\r\n\r\n") and not self.done.done():
            self.done.set_result(b"[DONE]" in seen)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(False)


async def main(url: str, rate: float, seconds: float, tokens: int) -> None:
    where = urlsplit(url)
    messages = [{"role": "user", "content": PROMPT}]
    body = json.dumps({"model": "chat", "messages": messages, "stream": True, "max_tokens": tokens}).encode()
    request = (
        f"POST {where.path}/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    idle: list[Chat] = []
    first: list[float] = []
    failed = 0

    async def ask(due: float) -> None:
        nonlocal failed
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if idle:
                    chat = idle.pop()
                else:
                    loop = asyncio.get_running_loop()
                    _, chat = await loop.create_connection(Chat, where.hostname or "", where.port or 80)
                chat.send(request)
                complete = await chat.done
        except (OSError, TimeoutError):
            complete = False
        if complete and chat.first:
            first.append(1000 * (chat.first - due))
            idle.append(chat)
        else:
            failed += 1

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(ask(due))
    took = time.monotonic() - began
    print(json.dumps({"first": first, "failed": failed, "seconds": took}))


if __name__ == "__main__":
    gc.disable()  # a collection would delay requests
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
