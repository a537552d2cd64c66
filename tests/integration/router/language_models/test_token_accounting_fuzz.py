"""Whatever an engine answers: Envoy passes it on, the module never fails, and no waiting tokens are left."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import clock
from serving.router.envoy.counts.token_counts import PAIRS
from tests.rig.fuzzing import fuzzed
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route

ADDRESS = own(69)

texts = st.text(max_size=30)
numbers = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(), st.none(), texts, st.lists(st.integers(), max_size=2)
)
usages = st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens", "x"]), numbers, max_size=3)
documents = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries({"delta": st.dictionaries(st.just("content"), texts)}), max_size=2
        ),
        "usage": st.one_of(st.none(), usages, texts),
        "text": texts,
    },
)
events = st.one_of(
    documents.map(lambda document: b"data: " + orjson.dumps(_finite(document)) + b"\n\n"),
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"data: [DONE]\n\n",
            b": comment\n\n",
            b"\n\n",
            b"\r\n\r\n",
            b'data: {"usage":',
            b'data: {"usage":{"completion_tokens":5',
            b'data: {"usage":{"completion_tokens":99999999999}}\n\n',
            b'"usage"',
            b"data: " + b"x" * 70_000,
            b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}',
        ]
    ),
)


def _finite(value: object) -> object:
    """Return a JSON value with integers that JSON writers of engines can have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**63):
        return str(value)
    return value


class Engine:
    """Answers with these chunks."""

    chunks: tuple[bytes, ...] = ()
    content_type = b"text/event-stream"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            await reader.readexactly(length)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
                % self.content_type
            )
            for chunk in self.chunks:
                writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[GatewayRig, Engine, aiohttp.ClientSession]]:
    engine = Engine()
    async with (
        tcp_server(engine.answer, ADDRESS, 8080),
        gateway_rig(tmp_path) as rig,
        aiohttp.ClientSession() as session,
    ):
        chat = route("chat", [("a", 10_000)])
        chat["spec"]["tokenUsage"] = "continuous"
        await rig.serve([chat], [endpoint_slice("chat-a", [ADDRESS])])
        yield rig, engine, session


@fuzzed(150)
@given(
    parts=st.lists(events, max_size=8),
    size=st.integers(1, 200),
    streamed=st.booleans(),
    is_stream=st.booleans(),
    has_usage=st.booleans(),
)
async def test_answers_of_any_engine_pass(
    served: tuple[GatewayRig, Engine, aiohttp.ClientSession],
    parts: list[bytes],
    size: int,
    *,
    streamed: bool,
    is_stream: bool,
    has_usage: bool,
) -> None:
    rig, engine, session = served
    sent = b"".join(parts)
    step = max(size, len(sent) // 100)
    engine.chunks = tuple(sent[at : at + step] for at in range(0, len(sent), step))
    engine.content_type = b"text/event-stream" if is_stream else b"application/json"
    body = {"messages": [], "stream": streamed}
    if has_usage:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    async with session.post(f"{rig.url}/default/chat/v1/completions", json=body) as response:
        assert response.status == 200
        answer = await response.read()
    is_changed = is_stream and streamed and not has_usage
    if not is_changed or b'"usage"' not in sent:
        assert answer == sent
    deadline = clock.monotonic() + 5
    while True:
        counts = rig.counts().tokens("default/chat-a/8080")
        if not any(counts.waiting(name) for name in PAIRS):
            break
        assert clock.monotonic() < deadline, counts
        await asyncio.sleep(0.01)
    assert rig.process.exit_code() is None
