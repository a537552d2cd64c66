"""A replica of known capacity: slots with a fixed service time, and a queue.

    python slot_server.py --slots 2 --service 0.2 --load 3
    python slot_server.py --slots 4 --step 0.1 --prefill 2000 --load 3

The second is a language model with OpenAI's streamed chats: a prompt is read at --prefill tokens per second,
one after the other; then its slot has a token each --step seconds. Words are tokens.

It listens after a sleep of --load seconds, as a server that loads its weights. It uses next to no processor
time, so two cores carry ten of them. After SIGTERM it finishes requests in flight, and clients close idle
connections, as with the shipped runtimes.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal

PART = '{"choices":[{"index":0,"delta":{"content":" word"}}],"usage":%s}'
ANSWER = b'{"outputs":[]}'
IDLE_SECONDS = 5.0
POLL_SECONDS = 0.05


class SlotServer:
    """One replica."""

    def __init__(self, slots: int, service: float) -> None:
        self.slots = asyncio.Semaphore(slots)
        self._service = service
        self._connected: set[asyncio.StreamWriter] = set()
        self._busy: set[asyncio.StreamWriter] = set()
        self.stopping = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.add(writer)
        closing = False
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not closing:
                head = await reader.readuntil(b"\r\n\r\n")
                self._busy.add(writer)
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                await self.respond(head, body, writer)
                closing = self.stopping.is_set()
                self._busy.discard(writer)
        self._busy.discard(writer)
        self._connected.discard(writer)
        writer.close()

    @property
    def close(self) -> bytes:
        """The header of a response after which the connection ends, if it does."""
        return b"connection: close\r\n" if self.stopping.is_set() else b""

    async def respond(self, head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        content = b""
        if head.split(b" ", 2)[1].endswith(b"/infer"):
            async with self.slots:
                await asyncio.sleep(self._service)
            content = ANSWER
        header = b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n"
        writer.write(header % (self.close, len(content)) + content)
        await writer.drain()

    async def drain(self) -> None:
        for _ in range(round(IDLE_SECONDS / POLL_SECONDS)):
            if not self._connected:
                break
            await asyncio.sleep(POLL_SECONDS)
        while self._busy:  # noqa: ASYNC110 connections say so
            await asyncio.sleep(POLL_SECONDS)


class TokenSlotServer(SlotServer):
    """One replica."""

    def __init__(self, slots: int, step: float, prefill: float) -> None:
        super().__init__(slots, 0.0)
        self._step, self._prefill = step, prefill
        self._reading = asyncio.Lock()

    async def respond(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if not head.startswith(b"POST"):
            await super().respond(head, body, writer)
            return
        request = json.loads(body)
        words = sum(len(message["content"].split()) for message in request["messages"])
        header = b"HTTP/1.1 200 OK\r\n%bcontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        async with self.slots:
            async with self._reading:
                await asyncio.sleep(words / self._prefill)
            writer.write(header % self.close)
            for number in range(1, int(request["max_tokens"]) + 1):
                await asyncio.sleep(self._step)
                usage = {"prompt_tokens": words, "completion_tokens": number}
                writer.write(_chunk(PART % json.dumps(usage)))
                await writer.drain()
        writer.write(_chunk("[DONE]") + b"0\r\n\r\n")
        await writer.drain()


def _chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


async def run(replica: SlotServer, load: float) -> None:
    """Serve after `load` seconds, until SIGTERM."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, replica.stopping.set)
    await asyncio.sleep(load)
    server = await asyncio.start_server(replica.serve, os.environ["HOST"], int(os.environ["PORT"]))
    await replica.stopping.wait()
    server.close()
    await replica.drain()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--service", type=float, default=0.0, help="seconds")
    parser.add_argument("--step", type=float, help="seconds between two tokens")
    parser.add_argument("--prefill", type=float, default=1.0, help="tokens per second")
    parser.add_argument("--load", type=float, required=True, help="seconds")
    chosen = parser.parse_args()
    model = SlotServer(chosen.slots, chosen.service)
    if chosen.step is not None:
        model = TokenSlotServer(chosen.slots, chosen.step, chosen.prefill)
    asyncio.run(run(model, chosen.load))
