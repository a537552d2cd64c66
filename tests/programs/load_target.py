"""A load target whose behaviour depends on the path.

    python load_target.py

Paths: `/wait/MS`, `/first/MS` (only a connection's first response waits), `/never`, `/garbage`, `/close`,
`/drip`, `/status/CODE`, `/block/MS` (the process stalls), `/stream/MS/completions`, and `/log`, which returns
and clears the log of requests. The program prints its port, and ends with standard input.
"""

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time

PROMPT_TOKENS, TOKENS = 7, 5
log: list[dict[str, object]] = []
inside: list[str] = []


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        for number in itertools.count():
            head = await reader.readuntil(b"\r\n\r\n")
            received = time.monotonic()
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            path = head.split(b" ")[1].decode()
            if path == "/log":
                content = json.dumps(log).encode()
                log.clear()
                writer.write(response(content))
                continue
            inside.append(path)
            row = {"path": path, "came": received, "inside": len(inside), "body": body.decode()}
            try:
                await answer(path, writer, first=number == 0)
            finally:
                inside.remove(path)
                log.append({**row, "took": time.monotonic() - received})
            await writer.drain()
            if path in {"/close", "/garbage"}:
                break
    writer.close()


async def answer(path: str, writer: asyncio.StreamWriter, *, first: bool) -> None:
    kind, _, rest = path[1:].partition("/")
    if kind == "wait" or (kind == "first" and first):
        await asyncio.sleep(float(rest) / 1000)
    elif kind == "first":
        await asyncio.sleep(0.005)
    elif kind == "block":
        time.sleep(float(rest) / 1000)  # noqa: ASYNC251 stalls the event loop on purpose
    elif kind == "never":
        await asyncio.sleep(3600)
    elif kind == "garbage":
        writer.write(b"\x00\xffthis is no HTTP\r\n\r\n")
        return
    elif kind == "close":
        return
    elif kind == "drip":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        for _ in range(100):
            writer.write(b".")
            await asyncio.sleep(0.1)
        return
    elif kind == "stream":
        await stream(writer, float(rest.partition("/")[0]) / 1000)
        return
    writer.write(response(b"{}", int(rest) if kind == "status" else 200))


async def stream(writer: asyncio.StreamWriter, pause: float) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    events = [json.dumps({"choices": [{"delta": {"content": f"t{n}"}}]}) for n in range(TOKENS)]
    usage = json.dumps({"usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": TOKENS}})
    for number, event in enumerate([*events, usage, "[DONE]"]):
        if number < TOKENS:
            await asyncio.sleep(pause)
        line = f"data: {event}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(line), line))
    writer.write(b"0\r\n\r\n")


def response(content: bytes, code: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (code, len(content), content)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
