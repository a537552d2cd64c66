"""Streamed chats at a fixed rate, as a process that keeps its connections from turn to turn.

    python stream_load.py TOKENS

Each line of its input is a turn, `RATE SECONDS URL`: chats of TOKENS tokens, RATE of them per second. The
process prints one JSON line after the last answer of a turn. A time to the first token is counted from the
moment at which a request was due.
"""

import asyncio
import gc
import json
import sys
import time
from urllib.parse import urlsplit

PROMPT = "the ship left the harbour with grain and came to the port in the evening of the third day " * 5
PATIENCE_SECONDS = 30.0


class ChatConnection(asyncio.Protocol):
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


class ChatClient:
    """Chats with one proxy."""

    def __init__(self, url: str, tokens: int) -> None:
        where = urlsplit(url)
        messages = [{"role": "user", "content": PROMPT}]
        body = json.dumps({"model": "chat", "messages": messages, "stream": True, "max_tokens": tokens})
        self._address = (where.hostname or "", where.port or 80)
        self._request = (
            f"POST {where.path}/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}"
        ).encode()
        self._idle: list[ChatConnection] = []

    async def turn(self, rate: float, seconds: float) -> dict[str, object]:
        """Start chats at a rate in 1/s; return times to the first token in ms, and the number of failures."""
        began = time.monotonic()
        chats = []
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                due = began + number / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                chats.append(group.create_task(self._first_token(due)))
        times = [chat.result() for chat in chats]
        return {"first": [each for each in times if each], "failed": times.count(None)}

    async def _first_token(self, due: float) -> float | None:
        """Have one chat; return the time to its first token in ms, or None if it failed."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                chat = await self._connection()
                chat.send(self._request)
                complete = await chat.done
        except (OSError, TimeoutError):
            return None
        if not complete or not chat.first:
            return None
        self._idle.append(chat)
        return 1000 * (chat.first - due)

    async def _connection(self) -> ChatConnection:
        while self._idle:
            chat = self._idle.pop()
            if not chat.transport.is_closing():
                return chat
        _, chat = await asyncio.get_running_loop().create_connection(ChatConnection, *self._address)
        return chat


async def main(tokens: int) -> None:
    clients: dict[str, ChatClient] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        rate, seconds, url = line.split()
        client = clients.setdefault(url, ChatClient(url, tokens))
        print(json.dumps(await client.turn(float(rate), float(seconds))), flush=True)


if __name__ == "__main__":
    gc.disable()  # a collection would delay requests
    asyncio.run(main(int(sys.argv[1])))
