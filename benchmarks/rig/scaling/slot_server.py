"""A replica of known capacity for framework `custom`: slots with a fixed service time, and a queue.

    python slot_server.py --slots 2 --service 0.2 --load 3

It listens after a sleep of --load seconds, as a server that loads its weights. It uses next to no processor
time, so two cores carry ten of them. After SIGTERM it finishes requests in flight, and clients close idle
connections, as with the shipped runtimes.
"""

import argparse
import asyncio
import contextlib
import os
import re
import signal

ANSWER = b'{"outputs":[]}'
IDLE_SECONDS = 5.0
POLL_SECONDS = 0.05


class SlotServer:
    """One replica."""

    def __init__(self, slots: int, service: float) -> None:
        self._slots = asyncio.Semaphore(slots)
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
                await reader.readexactly(int(length[1]) if length else 0)
                content = await self._answer(head)
                closing = self.stopping.is_set()
                close = b"connection: close\r\n" if closing else b""
                writer.write(
                    b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (close, len(content), content)
                )
                await writer.drain()
                self._busy.discard(writer)
        self._busy.discard(writer)
        self._connected.discard(writer)
        writer.close()

    async def _answer(self, head: bytes) -> bytes:
        if not head.split(b" ", 2)[1].endswith(b"/infer"):
            return b""
        async with self._slots:
            await asyncio.sleep(self._service)
        return ANSWER

    async def drain(self) -> None:
        for _ in range(round(IDLE_SECONDS / POLL_SECONDS)):
            if not self._connected:
                break
            await asyncio.sleep(POLL_SECONDS)
        while self._busy:  # noqa: ASYNC110 connections say so
            await asyncio.sleep(POLL_SECONDS)


async def main(slots: int, service: float, load: float) -> None:
    replica = SlotServer(slots, service)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, replica.stopping.set)
    await asyncio.sleep(load)
    server = await asyncio.start_server(replica.serve, os.environ["HOST"], int(os.environ["PORT"]))
    await replica.stopping.wait()
    server.close()
    await replica.drain()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--service", type=float, required=True, help="seconds")
    parser.add_argument("--load", type=float, required=True, help="seconds")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.slots, chosen.service, chosen.load))
