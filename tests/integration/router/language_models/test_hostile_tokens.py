"""Clients and engines that try to stop Envoy by what the module of token accounting reads."""

import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from serving import clock
from tests.rig.servers.chat import Chat, chatting

SECONDS = 1.0
"""Limit of a linear module; a quadratic one stops all services for 7 s to minutes with these inputs."""
MIB = 1024 * 1024


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
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
async def test_module_is_linear_when_a_request_is_hostile(chat: Chat, path: str, body: bytes) -> None:
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
    ],
    ids=["crlf", "lf", "crlf and lf", "usages", "braces", "spaces", "contents", "commas"],
)
async def test_module_is_linear_when_an_answer_is_hostile(chat: Chat, answer: bytes) -> None:
    chat.engine.raw = answer
    began = clock.monotonic()
    await chat.ask(stream=True, max_tokens=1)
    assert clock.monotonic() - began < SECONDS
    await chat.until_settled()


async def test_next_answer_is_whole_when_a_stream_has_a_length(chat: Chat) -> None:
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


async def test_events_of_lines_that_end_with_crlf_are_counted(chat: Chat) -> None:
    event = {"choices": [{"delta": {"content": "a"}}]}
    chat.engine.raw = (b"data: " + orjson.dumps(event) + b"\r\n\r\n") * 5
    await chat.ask(stream=True, max_tokens=9)
    counts = await chat.until_settled()
    assert counts.generated_tokens == 5
