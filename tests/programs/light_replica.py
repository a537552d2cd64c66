"""A replica for framework `custom` that starts fast, for tests with many replicas.

    python light_replica.py

It answers inference requests with the label in the model's files, in the form that `steady_load.py` reads,
and POST .../stream with lines over some seconds. On SIGTERM it completes requests in flight, and waits for
clients to close idle connections, as the shipped runtimes do.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from pathlib import Path

LINES = 40
PAUSE_SECONDS = 0.1
IDLE_SECONDS = 5.0
POLL_SECONDS = 0.02
stopping = asyncio.Event()
busy: set[asyncio.StreamWriter] = set()
connected: set[asyncio.StreamWriter] = set()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connected.add(writer)
    closing = False
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while not closing:
            head = await reader.readuntil(b"\r\n\r\n")
            busy.add(writer)
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            closing = stopping.is_set()
            begin = b"HTTP/1.1 200 OK\r\n" + (b"connection: close\r\n" if closing else b"")
            path = head.split(b" ")[1]
            if path.endswith(b"/stream"):
                writer.write(begin + b"transfer-encoding: chunked\r\n\r\n")
                await stream(writer)
            else:
                content = answer() if path.endswith(b"/infer") else b""
                writer.write(begin + b"content-length: %d\r\n\r\n%b" % (len(content), content))
            await writer.drain()
            busy.discard(writer)
    busy.discard(writer)
    connected.discard(writer)
    writer.close()


def answer() -> bytes:
    label = int(Path(os.environ["SLIPWAY_MODEL_DIR"], "label").read_text())
    version = os.environ["SLIPWAY_MODEL_VERSION"]
    return json.dumps({"model_version": version, "outputs": [{"data": [label]}]}).encode()


async def stream(writer: asyncio.StreamWriter) -> None:
    for number in range(LINES):
        line = b"line %d\n" % number
        writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await asyncio.sleep(PAUSE_SECONDS)
    writer.write(b"0\r\n\r\n")


async def main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    server = await asyncio.start_server(serve, os.environ["HOST"], int(os.environ["PORT"]))
    await stopping.wait()
    server.close()
    for _ in range(round(IDLE_SECONDS / POLL_SECONDS)):
        if not connected:
            break
        await asyncio.sleep(POLL_SECONDS)
    while busy:
        await asyncio.sleep(POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
