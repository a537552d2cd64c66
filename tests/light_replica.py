"""A replica for framework `custom` that starts in no time, so that a test can start many of them.

    python light_replica.py

It answers inference requests as `steady_load.py` reads them, with the label in the model's files, and POST .../stream
with a line now and then for some seconds. SIGTERM lets requests in flight finish.
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
busy: set[asyncio.StreamWriter] = set()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            busy.add(writer)
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            path = head.split(b" ")[1]
            if path.endswith(b"/stream"):
                await stream(writer)
            else:
                content = answer() if path.endswith(b"/infer") else b""
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))
            await writer.drain()
            busy.discard(writer)
    busy.discard(writer)
    writer.close()


def answer() -> bytes:
    label = int(Path(os.environ["SLIPWAY_MODEL_DIR"], "label").read_text())
    version = os.environ["SLIPWAY_MODEL_VERSION"]
    return json.dumps({"model_version": version, "outputs": [{"data": [label]}]}).encode()


async def stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(LINES):
        line = b"line %d\n" % number
        writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await asyncio.sleep(PAUSE_SECONDS)
    writer.write(b"0\r\n\r\n")


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    server = await asyncio.start_server(serve, os.environ["HOST"], int(os.environ["PORT"]))
    await stopping.wait()
    server.close()
    while busy:
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main())
