"""Clients and engines that try to stop Envoy by what the module of token accounting reads."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from serving import clock
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.chat import ChatRig, chatting
from tests.rig.servers.gateway import endpoint_slice, route

SECONDS = 1.0
"""Limit of a linear module; a quadratic one stops all services for 7 s to minutes with these inputs."""
MIB = 1024 * 1024


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[ChatRig]:
    async with chatting(tmp_path) as chat:
        await chat.serve("continuous")
        yield chat


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream": "a' + b" " * MIB + b'b"}',
        b'{"max_tokens": 1' + b" " * MIB + b"1}",
        b'{"stream_options": ' + b' "include_usage"' * (MIB // 16) + b"}",
        b'{"messages": "' + b"\\" * MIB + b'"}',
        b'{"model": "' + b" " * MIB + b'x", "stream": true}',
        b'{"model": "x"' + b" " * 3 * MIB + b"}",
    ],
    ids=[
        "spaces in a string",
        "spaces in a number",
        "many options",
        "backslashes",
        "spaces in the model",
        "spaces behind the model",
    ],
)
@pytest.mark.parametrize("path", ["default/chat", "default/openai"])
async def test_module_is_linear_when_a_request_is_hostile(chat: ChatRig, path: str, body: bytes) -> None:
    began = clock.monotonic()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{chat.rig.url}/{path}/v1/chat/completions", data=io.BytesIO(body)) as response,
    ):
        await response.read()
    assert clock.monotonic() - began < SECONDS
    await chat.until_settled()


@pytest.mark.parametrize(
    "answer",
    [
        b"\r\n\r\n" * 64_000,
        b"\n\n" * 64_000,
        b"data: x\r\n\r\n" * 16_000 + b"\n\n",
        (b'"usage":{' * 7_000 + b"\n\n") * 16,
        b'data: {"usage":' + b"{" * 60_000 + b"\n\n",
        b'data: {"choices": [' + b" " * 60_000 + b', "usage": null' + b" " * 60_000 + b"}\n\n",
        b'"content"' * 7_000 + b"\n\n",
        b"," * 60_000 + b'"usage":{"completion_tokens":1}\n\n',
        b"data: " + b"[ " * 30_000 + b'"usage":{"completion_tokens":1}\n\n',
    ],
    ids=["crlf", "lf", "crlf and lf", "usages", "braces", "spaces", "contents", "commas", "brackets"],
)
async def test_module_is_linear_when_an_answer_is_hostile(chat: ChatRig, answer: bytes) -> None:
    chat.engine.raw = answer
    began = clock.monotonic()
    await chat.ask(stream=True, max_tokens=1)
    assert clock.monotonic() - began < SECONDS
    await chat.until_settled()


async def test_next_answer_is_whole_when_a_stream_has_a_length(chat: ChatRig) -> None:
    event = {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    chat.engine.raw = b"data: " + orjson.dumps(event) + b"\n\ndata: [DONE]\n\n"
    connector = aiohttp.TCPConnector(limit=1)
    body = {"model": "chat", "messages": [], "stream": True}
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(3):
            url = f"{chat.rig.url}/default/chat/v1/chat/completions"
            async with session.post(url, json=body) as response:
                assert "content-length" not in response.headers
                answer = await response.read()
            expected = orjson.dumps({"choices": event["choices"]})
            assert answer == b"data: " + expected + b"\n\ndata: [DONE]\n\n"


async def test_events_of_lines_that_end_with_crlf_are_counted(chat: ChatRig) -> None:
    event = {"choices": [{"delta": {"content": "a"}}]}
    chat.engine.raw = (b"data: " + orjson.dumps(event) + b"\r\n\r\n") * 5
    await chat.ask(stream=True, max_tokens=9)
    counts = await chat.until_settled()
    assert counts.generated_tokens == 5


def event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


TEXT = {"choices": [{"delta": {"content": "a"}}]}
DONE = b"data: [DONE]\n\n"


async def test_usage_is_removed_whole_and_its_own_numbers_are_read_when_it_has_objects_and_braces(
    chat: ChatRig,
) -> None:
    details = {"completion_tokens": 99, "note": '}"\\', "prompt_tokens": 99}
    usage = {"details": details, "completion_tokens": 3, "prompt_tokens": 7}
    chat.engine.raw = event(usage=usage, **TEXT) + DONE
    assert await chat.ask(stream=True, max_tokens=9) == event(**TEXT) + DONE
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (7, 3)


async def test_event_of_usage_alone_is_removed_and_one_with_other_empty_lists_is_not(chat: ChatRig) -> None:
    usage = {"completion_tokens": 3, "prompt_tokens": 7}
    fields = {"tools": [], "choices": [{"delta": {"content": "[]"}}]}
    alone = b'data: {"tools":[1],"choices": [ ],"usage":' + orjson.dumps(usage) + b"}\n\n"
    chat.engine.raw = event(**fields, usage=usage) + alone + DONE
    assert await chat.ask(stream=True, max_tokens=9) == event(**fields) + DONE
    assert (await chat.until_settled()).generated_tokens == 3


@pytest.mark.parametrize("number", [None, -5, "many", 10**12, {}])
async def test_counted_tokens_stay_when_the_engine_reports_no_number(chat: ChatRig, number: object) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": number}
    chat.engine.raw = event(**TEXT) * 4 + event(usage=usage, **TEXT) + event(choices=[], usage=usage) + DONE
    assert await chat.ask(stream=True, max_tokens=9) == event(**TEXT) * 5 + DONE
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (7, 5)


async def test_event_without_choices_passes_when_its_usage_is_null(chat: ChatRig) -> None:
    chat.engine.raw = event(choices=[], prompt_filter_results=[1], usage=None) + event(**TEXT) + DONE
    answer = await chat.ask(stream=True, max_tokens=9)
    assert answer == event(choices=[], prompt_filter_results=[1]) + event(**TEXT) + DONE
    await chat.until_settled()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
async def test_last_event_passes_and_is_counted_when_no_empty_line_ends_it(chat: ChatRig, end: bytes) -> None:
    last = event(usage={"prompt_tokens": 7, "completion_tokens": 2}, **TEXT)
    chat.engine.raw = event(**TEXT) + last.removesuffix(b"\n\n") + end
    answer = await chat.ask(stream=True, max_tokens=9)
    assert answer == event(**TEXT) + event(**TEXT).removesuffix(b"\n\n") + end
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (7, 2)


async def test_later_tokens_are_counted_when_an_engine_has_taken_back_a_huge_number(chat: ChatRig) -> None:
    many, one = (event(usage={"completion_tokens": number}, **TEXT) for number in (900_000_000, 1))
    # Not in one part, whose numbers are added before they are counted.
    chat.engine.raw = many + b":" * 200_000 + b"\n\n" + one
    await chat.ask(stream=True, max_tokens=9)
    lied = (await chat.until_settled()).generated_tokens
    chat.engine.raw = event(usage={"completion_tokens": 200_000}, **TEXT)
    await chat.ask(stream=True, max_tokens=9)
    assert (await chat.until_settled()).generated_tokens > lied


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "tokens"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + STREAM + b"content-length: 21\r\n\r\n", 200, 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM + b"content-length: 21\r\n\r\n", 200, 1),
        (STREAM + b"content-length: 0\r\n\r\n", 200, 0),
        (STREAM.replace(b"200 OK", b"204 No Content") + b"\r\n", 204, 0),
        (STREAM.replace(b"200 OK", b"500 No") + b"content-length: 21\r\n\r\n", 500, 0),
    ],
    ids=["early hints", "continue", "no body", "no content", "error"],
)
async def test_answer_with_an_unusual_head_passes_and_is_settled(
    chat: ChatRig, answer: bytes, status: int, tokens: int
) -> None:
    body = b'data: {"text":"abc"}\n' if b"content-length: 21" in answer else b""

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer + body)
        await writer.drain()
        await reader.read()

    async with tcp_server(engine, own(116), 8080):
        served = route("chat", [("a", 10_000)], generation=2)
        served["spec"]["tokenUsage"] = "continuous"
        await chat.rig.serve([served], [endpoint_slice("chat-a", [own(116)])])
        async with chat.asked(stream=True) as response:
            assert response.status == status
            assert await response.read() == body
        assert (await chat.until_settled()).generated_tokens == tokens


async def test_nothing_waits_when_a_client_aborts_its_upload(chat: ChatRig) -> None:
    head = b"POST /default/chat/v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", chat.rig.settings.gateway.port)
    writer.write(head + b'{"stream": true, ')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await chat.ask(stream=True, max_tokens=2)
    counts = await chat.until_settled()
    assert (counts.counters["requests_admitted"], counts.generated_tokens) == (1, 2)
