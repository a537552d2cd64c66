"""Envoy counts the tokens of requests to language models, however the requests end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from serving import clock
from serving.router.envoy.counts.token_counts import PAIRS
from tests.fakes.language_engine import PROMPT_TOKENS
from tests.rig.machine.addresses import own
from tests.rig.servers.chat import ChatRig, chatting, engine_address
from tests.rig.servers.gateway import endpoint_slice, route


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[ChatRig]:
    async with chatting(tmp_path) as chat:
        yield chat


def events(answer: bytes) -> list[Any]:
    """Return the documents of a stream's events, without the last, `[DONE]`."""
    *parts, done = [event.removeprefix(b"data: ") for event in answer.split(b"\n\n")[:-1]]
    assert done == b"[DONE]"
    return [orjson.loads(part) for part in parts]


@pytest.mark.parametrize("splits_events", [False, True])
@pytest.mark.parametrize("usage", ["final", "continuous"])
async def test_stream_is_counted_and_looks_as_if_nobody_had_asked_for_its_tokens(
    chat: ChatRig, usage: str, *, splits_events: bool
) -> None:
    await chat.serve(usage)
    chat.engine.splits_events = splits_events
    answer = events(await chat.ask(stream=True, max_tokens=20))
    assert [event["choices"][0]["delta"].get("content") for event in answer] == [
        "",
        *(f'"w{index} ' for index in range(20)),
    ]
    assert all("usage" not in event for event in answer)
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (PROMPT_TOKENS, 20)
    counts = await chat.until(lambda counts: counts.inter_token.at_most[-1] == 19)  # at the next reading
    assert counts.first_token.at_most[-1] == 1
    asked = chat.engine.requests[-1]["stream_options"]
    assert asked == {"include_usage": True} | (
        {"continuous_usage_stats": True} if usage == "continuous" else {}
    )


@pytest.mark.parametrize("usage", ["final", "continuous"])
async def test_client_that_asks_for_usage_gets_it_in_the_last_event_alone(chat: ChatRig, usage: str) -> None:
    await chat.serve(usage)
    answer = events(await chat.ask(stream=True, max_tokens=3, stream_options={"include_usage": True}))
    assert [event.get("usage") for event in answer[:-1]] == [None] * 4
    assert answer[-1]["choices"] == []
    assert answer[-1]["usage"]["completion_tokens"] == 3
    assert (await chat.until_settled()).generated_tokens == 3


async def test_answer_that_is_not_streamed_is_counted_and_unchanged(chat: ChatRig) -> None:
    await chat.serve("continuous")
    answer = orjson.loads(await chat.ask(max_tokens=5))
    assert answer["usage"]["completion_tokens"] == 5
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (PROMPT_TOKENS, 5)
    assert "stream_options" not in chat.engine.requests[-1]


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_is_counted_when_the_client_and_the_engine_can_compress(
    chat: ChatRig, *, stream: bool
) -> None:
    await chat.serve("continuous")
    chat.engine.compresses = "if allowed"
    async with chat.asked(stream=stream, max_tokens=20) as response:
        assert "gzip" in response.request_info.headers["accept-encoding"]
        assert "content-encoding" not in response.headers
        await response.read()
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (PROMPT_TOKENS, 20)


@pytest.mark.parametrize("stream", [False, True])
async def test_compressed_answer_passes_uncounted(chat: ChatRig, *, stream: bool) -> None:
    await chat.serve("continuous")
    chat.engine.compresses = "always"
    async with chat.asked(stream=stream, max_tokens=2000) as response:
        assert response.headers["content-encoding"] == "gzip"
        answer = await response.read()  # decompressed
    if stream:
        assert len(events(answer)) == 2002
    else:
        assert orjson.loads(answer)["usage"]["completion_tokens"] == 2000
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (0, 0)


async def test_request_waits_with_its_tokens_until_its_first_token(chat: ChatRig) -> None:
    await chat.serve("continuous")
    chat.engine.released.clear()
    asked = asyncio.create_task(chat.ask(stream=True, max_tokens=40))
    counts = await chat.until(lambda counts: counts.waiting("requests") == 1)
    assert counts.waiting("prompt") > 0
    assert counts.waiting("output") == 40
    assert 0 <= counts.age(clock.now().timestamp()) < 5
    chat.engine.stop_after = 16
    chat.engine.released.set()
    counts = await chat.until(lambda counts: counts.waiting("output") < 40)
    assert counts.waiting("requests") == counts.waiting("prompt") == 0
    assert counts.age(clock.now().timestamp()) == 0
    asked.cancel()
    await asyncio.wait([asked])
    counts = await chat.until_settled()
    assert counts.generated_tokens == 16


@pytest.mark.parametrize("usage", ["final", "continuous"])
async def test_client_that_disconnects_leaves_what_it_got_and_no_waiting_tokens(
    chat: ChatRig, usage: str
) -> None:
    await chat.serve(usage)
    chat.engine.stop_after = 5
    async with chat.asked(stream=True, max_tokens=40) as response:
        while b"w4" not in await response.content.readuntil(b"\n\n"):
            pass
    counts = await chat.until_settled()
    assert counts.generated_tokens == 5
    assert counts.prompt_tokens > 0  # an estimate until the engine reports it


async def test_engine_that_dies_in_mid_stream_leaves_no_waiting_tokens(chat: ChatRig) -> None:
    await chat.serve("continuous")
    chat.engine.abort_after = 5
    with pytest.raises(aiohttp.ClientPayloadError):
        await chat.ask(stream=True, max_tokens=40)
    counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (PROMPT_TOKENS, 5)


async def test_engine_that_hangs_in_mid_stream_leaves_no_waiting_tokens(tmp_path: Path) -> None:
    async with chatting(tmp_path, stream_idle_seconds=1.0) as chat:
        chat.engine.stop_after = 5
        await chat.serve("continuous")
        with pytest.raises(aiohttp.ClientPayloadError):
            await chat.ask(stream=True, max_tokens=40)
        assert (await chat.until_settled()).generated_tokens == 5


async def test_client_that_never_reads_is_ended_and_leaves_no_waiting_tokens(tmp_path: Path) -> None:
    async with chatting(tmp_path, stream_idle_seconds=1.0) as chat:
        await chat.serve("continuous")
        body = b'{"messages": [], "stream": true, "max_tokens": 1000000}'
        head = b"POST /default/chat/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
        with socket.create_connection(("127.0.0.1", chat.rig.settings.gateway.port)) as client:
            client.sendall(head % len(body) + body)
            await chat.until(lambda counts: counts.generated_tokens > 1000)
            deadline = clock.monotonic() + 60  # the sockets' buffers take megabytes first
            while chat.engine.streams:
                assert clock.monotonic() < deadline
                await asyncio.sleep(0.1)
        counts = await chat.until_settled()
        assert counts.generated_tokens < 1_000_000


async def test_answer_that_is_longer_than_expected_has_no_waiting_tokens_while_it_streams(
    chat: ChatRig,
) -> None:
    await chat.serve("continuous")
    chat.engine.stop_after = 14
    async with chat.asked(stream=True, max_completion_tokens=13):
        counts = await chat.until_settled()
        assert counts.counters["output_admitted"] == 13
        assert chat.engine.streams == 1


async def test_request_that_nobody_answers_leaves_no_waiting_tokens(chat: ChatRig) -> None:
    await chat.serve("continuous")
    await chat.rig.serve([], [])
    dead = route("chat", [("a", 10_000)])
    dead["spec"]["tokenUsage"] = "continuous"
    await chat.rig.serve([dead], [endpoint_slice("chat-a", [own(66)])])
    async with chat.asked(stream=True, max_tokens=40) as response:
        assert response.status == 503
    counts = await chat.until_settled()
    assert counts.counters["requests_admitted"] == 1
    assert counts.generated_tokens == 0


async def test_learned_length_of_answers_is_expected_of_later_requests(chat: ChatRig) -> None:
    await chat.serve("continuous")
    for _ in range(12):
        await chat.ask(max_tokens=20)
    chat.engine.released.clear()
    asked = asyncio.create_task(chat.ask(stream=True))
    counts = await chat.until(lambda counts: counts.waiting("requests") == 1)
    assert 20 <= counts.waiting("output") <= 30  # 128 before the first answer
    assert PROMPT_TOKENS - 2 <= counts.waiting("prompt") <= PROMPT_TOKENS + 2
    chat.engine.released.set()
    await asked


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"stream": true',
        b'{"stream": true, "messages": "\\',
        b"[" * 100_000,
        b'{"a": ' * 20_000,
        b'{"messages": "' + b'\\"' * 100_000 + b'", "stream": true}',
        b"\xff\xfe\x00",
        b'{"max_tokens": 1e400, "stream": true}',
        b'{"max_tokens": -5, "stream": true, "stream_options": 3}',
        b'{"max_tokens": "many", "max_completion_tokens": {}, "messages": []}',
    ],
)
async def test_malformed_request_reaches_the_engine_and_leaves_no_waiting_tokens(
    chat: ChatRig, body: bytes
) -> None:
    await chat.serve("continuous")
    async with aiohttp.ClientSession() as session:
        url = f"{chat.rig.url}/default/chat/v1/chat/completions"
        async with session.post(url, data=body) as response:
            await response.read()
            assert response.status in (200, 500)  # the engine's, which is a strict parser
    await chat.until_settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
async def test_engine_gets_the_length_of_a_request_without_one(
    chat: ChatRig, path: str, *, stream: bool
) -> None:
    await chat.serve("continuous")
    body = orjson.dumps({"messages": [], "max_tokens": 1, "stream": stream})

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 20):
            yield body[at : at + 20]
            await asyncio.sleep(0.01)

    url = f"{chat.rig.url}/default/chat/v1/{path}"
    async with aiohttp.ClientSession() as session, session.post(url, data=parts()) as response:
        assert response.status == 200
        await response.read()
    (length,) = chat.engine.lengths
    is_changed = stream and path == "chat/completions"
    assert length is not None
    assert (length > len(body)) if is_changed else (length == len(body))


async def test_request_above_the_limit_is_refused(chat: ChatRig) -> None:
    await chat.serve("continuous")
    limit = chat.rig.settings.gateway.language_request_bytes
    async with chat.asked("embeddings", user="x" * limit) as response:
        assert response.status == 413
    async with chat.asked(max_tokens=1, user="x" * limit) as response:
        assert response.status == 413
        assert orjson.loads(await response.read())["error"] == {
            "message": f"the request must be at most {limit} bytes",
            "type": "invalid_request_error",
            "param": None,
            "code": "request_too_large",
        }
    assert (
        orjson.loads(await chat.ask(max_tokens=1, user="x" * (limit - 1000)))["usage"]["completion_tokens"]
        == 1
    )
    await chat.until_settled()


async def test_other_paths_and_services_are_not_counted(chat: ChatRig) -> None:
    await chat.serve("continuous")
    await chat.ask("embeddings")
    await chat.serve("none")
    await chat.ask(stream=True, max_tokens=3)
    assert not any(chat.counts().counters.values())


async def test_answer_of_another_arm_is_counted_for_that_arm_when_a_retry_goes_there(chat: ChatRig) -> None:
    both = route("chat", [("dead", 5_000), ("a", 5_000)])
    both["spec"]["tokenUsage"] = "continuous"
    slices = [endpoint_slice("chat-dead", [own(66)]), endpoint_slice("chat-a", [engine_address()])]
    await chat.rig.serve([both], slices)
    for _ in range(20):
        await chat.ask(stream=True, max_tokens=3)
    counts = await chat.until_settled()
    dead = chat.rig.counts().tokens("default/chat-dead/8080")
    assert dead.counters["requests_admitted"] > 0  # the test's condition: some went there first
    assert not any(dead.waiting(name) for name in PAIRS)
    assert (dead.prompt_tokens, dead.generated_tokens, dead.first_token.at_most[-1]) == (0, 0, 0)
    assert (counts.prompt_tokens, counts.generated_tokens) == (20 * PROMPT_TOKENS, 20 * 3)
