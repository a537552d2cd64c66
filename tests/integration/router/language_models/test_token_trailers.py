"""A request or an answer of HTTP/2 that ends with trailers is read, changed and counted as any other."""

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.chat import chatting
from tests.rig.servers.gateway import endpoint_slice, route

DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ENGINE = own(115)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def headers(**fields: str) -> bytes:
    """Return a block of literals that are not compressed (RFC 7541, 6.2.2)."""
    texts = ((name.replace("__", ":"), value) for name, value in fields.items())
    return b"".join(
        b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
        for name, value in texts
    )


async def answer_to(port: int, path: str, body: bytes) -> bytes:
    """Send a request in two parts with trailers; return the data of its answer."""
    head = headers(__method="POST", __scheme="http", __path=path, __authority="a")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    writer.write(frame(HEADERS, END_HEADERS, 1, head) + frame(DATA, 0, 1, body[:20]))
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.write(frame(DATA, 0, 1, body[20:]))
    writer.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(checksum="1")))
    received = b""
    while True:
        size, kind, flags, _ = (part := await reader.readexactly(9))[:3], part[3], part[4], part[5:]
        payload = await reader.readexactly(int.from_bytes(size))
        received += payload if kind == DATA else b""
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            writer.close()
            return received


@pytest.mark.parametrize("path", ["/default/chat", "/default/openai"])
async def test_request_with_trailers_is_counted(tmp_path: Path, path: str) -> None:
    body = orjson.dumps({"messages": [], "model": "chat", "stream": True, "max_tokens": 3})
    async with chatting(tmp_path) as chat:
        await chat.serve("continuous")
        port = chat.rig.settings.gateway.port
        async with asyncio.timeout(10):
            answer = await answer_to(port, f"{path}/v1/chat/completions", body)
        assert b"[DONE]" in answer
        assert b"usage" not in answer
        assert (await chat.until_settled()).generated_tokens == 3


async def answer_with_trailers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a stream whose last event has no empty line behind it."""
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    events = b'data: {"text":"a"}\n\ndata: ' + orjson.dumps({"text": "b", "usage": usage})
    await reader.readexactly(len(PREFACE))
    writer.write(frame(SETTINGS, 0, 0))
    while True:
        part = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(part[:3]))
        if part[3] in (DATA, HEADERS) and part[4] & END_STREAM:
            stream = int.from_bytes(part[5:])
            head = {"__status": "200", "content-type": "text/event-stream"}
            writer.write(frame(HEADERS, END_HEADERS, stream, headers(**head)))
            writer.write(frame(DATA, 0, stream, events))
            writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, headers(checksum="1")))


async def test_answer_with_trailers_is_whole_when_no_empty_line_ends_its_last_event(tmp_path: Path) -> None:
    async with tcp_server(answer_with_trailers, ENGINE, 8080), chatting(tmp_path) as chat:
        served = route("chat", [("a", 10_000)], h2c=["a"])
        served["spec"]["tokenUsage"] = "continuous"
        await chat.rig.serve([served], [endpoint_slice("chat-a", [ENGINE])])
        answer = await chat.ask(stream=True)
        assert answer == b'data: {"text":"a"}\n\ndata: {"text":"b"}'
        counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (7, 2)
