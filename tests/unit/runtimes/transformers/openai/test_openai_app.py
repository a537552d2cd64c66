"""The server of OpenAI's API beside its engine: health, long prompts and the memory of bodies."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from serving import clock, errors
from serving.runtimes.large_requests import BodyRoom, LargeRequests
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.startup import StartupReport
from serving.runtimes.transformers.generation import GenerationRequest, Part, TokenChoice
from serving.runtimes.transformers.openai import requests
from serving.settings import RuntimeSettings
from tests.rig import optional_modules

optional_modules.torch()
optional_modules.transformers()
app = optional_modules.lazy("serving.runtimes.transformers.openai.app")

MIB = 1 << 20
BODIES = 300_000
COUNT = 64_000
"""Parts of an answer that wait for a client that does not read."""
LONGEST = 10.0
"""Seconds for which a tokenizer waits in vain, so that a test of a blocked event loop ends."""
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


class Engine:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.why = ""
        self.is_full = False
        self.answers_at_once = False
        self.submitted: list[tuple[GenerationRequest, Callable[[Part], None]]] = []

    def obstacle(self, now: float) -> str:
        return self.why

    def check_room(self) -> None:
        if self.is_full:
            raise errors.Temporary("EngineFull", "the engine is full")

    def submit(self, request: GenerationRequest, deliver: Callable[[Part], None]) -> object:
        self.submitted.append((request, deliver))
        if self.answers_at_once:
            self.answer()
        return object()

    def cancel(self, generation: object) -> None:
        pass

    def answer(self) -> None:
        for _, deliver in self.submitted:
            deliver(Part("ok", tokens=1, finish="stop"))


class Vocabulary:
    """Has one token for every prompt, in its time."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def encode(self, text: str, context: int) -> tuple[int, ...]:
        self.threads.append(threading.current_thread().name)
        self.began.set()
        assert self.may_end.wait(LONGEST), "the event loop is blocked"
        return (len(text),)

    def encode_chat(self, messages: list[dict[str, Any]], context: int) -> tuple[int, ...]:
        return self.encode("".join(message["content"] for message in messages), context)

    def checked(self, tokens: list[int]) -> tuple[int, ...]:
        return tuple(tokens)

    def token_bytes(self, token: int) -> bytes:
        return b""


class Rig:
    def __init__(self, worker: ThreadPoolExecutor) -> None:
        self.engine, self.vocabulary = Engine(), Vocabulary()
        served = ServedModel("tests", "m", "v1", StartupReport(0.0))
        self.large = LargeRequests(RequestMemory(64 * MIB, BODIES), worker)
        settings = RuntimeSettings()
        self.app = app.OpenAiApp(self.engine, self.vocabulary, served, settings, 100, large=self.large)

    async def ask(self, path: str, body: bytes = b"") -> tuple[int, dict[bytes, bytes], Any]:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST" if body else "GET", "path": path, "headers": []}
        await self.app(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), orjson.loads(sent[1]["body"])

    async def submitted(self, count: int) -> None:
        while len(self.engine.submitted) < count:
            await asyncio.sleep(0.001)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ThreadPoolExecutor(1, "codec") as worker:
        yield Rig(worker)


def body(path: str, characters: int) -> bytes:
    text = "x" * characters
    asked = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    return orjson.dumps({"model": "m", "max_tokens": 5, **asked})


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready"])
async def test_replica_is_neither_live_nor_ready_when_its_engine_is_dead(rig: Rig, path: str) -> None:
    assert (await rig.ask(path))[0] == 200
    rig.engine.why = "the model failed 3 times in a row; see its log"
    status, _, document = await rig.ask(path)
    assert (status, document["error"]["message"]) == (503, rig.engine.why)


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_liveness_is_answered_while_a_long_prompt_becomes_tokens(rig: Rig, path: str) -> None:
    rig.vocabulary.may_end.clear()
    answers = [asyncio.create_task(rig.ask(path, body(path, 20_000))) for _ in range(2)]
    while not rig.vocabulary.began.is_set():
        await asyncio.sleep(0.001)
    assert (await rig.ask("/v2/health/live"))[0] == 200
    assert len(rig.vocabulary.threads) == 1
    rig.vocabulary.may_end.set()
    await rig.submitted(2)
    rig.engine.answer()
    assert [(await answer)[0] for answer in answers] == [200, 200]
    assert rig.vocabulary.threads == ["codec_0", "codec_0"]


async def test_waiting_parts_are_joined_in_a_time_that_grows_with_their_number() -> None:
    parts: asyncio.Queue[Part] = asyncio.Queue()
    for number in range(COUNT):
        finish = "stop" if number == COUNT - 1 else None
        parts.put_nowait(Part("a", (TokenChoice(number, -1.0),), number + 1, finish))
    began = clock.monotonic()
    [part] = [part async for part in app._until_end(parts)]
    seconds = clock.monotonic() - began
    assert (part.text, part.tokens, part.finish) == ("a" * COUNT, COUNT, "stop")
    assert [choice.token for choice in part.choices] == list(range(COUNT))
    assert seconds < 1, "the event loop was blocked"


async def test_parts_that_come_after_a_join_are_parts_of_their_own() -> None:
    parts: asyncio.Queue[Part] = asyncio.Queue()
    for text in ("a", "b"):
        parts.put_nowait(Part(text, tokens=1))
    received = app._until_end(parts)
    assert await anext(received) == Part("ab", tokens=1)
    parts.put_nowait(Part("c", tokens=2, finish="length"))
    assert [part async for part in received] == [Part("c", tokens=2, finish="length")]


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_short_prompt_becomes_tokens_without_a_thread(rig: Rig, path: str) -> None:
    answer = asyncio.create_task(rig.ask(path, body(path, 100)))
    await rig.submitted(1)
    rig.engine.answer()
    status, _, document = await answer
    assert (status, document["usage"]["prompt_tokens"]) == (200, 1)
    assert rig.vocabulary.threads == [threading.current_thread().name]


@pytest.mark.parametrize("tokens", [1, 84, 85, 99])
async def test_completion_without_a_limit_ends_with_the_context_when_it_has_less_than_the_default(
    rig: Rig, tokens: int
) -> None:
    rig.engine.answers_at_once = True
    status, _, document = await rig.ask(COMPLETIONS, orjson.dumps({"model": "m", "prompt": [1] * tokens}))
    assert status == 200, document
    assert rig.engine.submitted[0][0].max_tokens == min(16, 100 - tokens)


async def test_bodies_beyond_the_memory_for_them_get_429_and_small_ones_are_answered(rig: Rig) -> None:
    rig.vocabulary.may_end.clear()
    large = body(COMPLETIONS, 200_000)
    first = asyncio.create_task(rig.ask(COMPLETIONS, large))
    while not rig.vocabulary.began.is_set():
        await asyncio.sleep(0.001)
    status, headers, document = await rig.ask(COMPLETIONS, large)
    assert (status, headers[b"retry-after"]) == (429, b"1")
    assert document["error"]["message"] == "large requests already fill the memory for them"
    rig.vocabulary.may_end.set()
    small = asyncio.create_task(rig.ask(COMPLETIONS, body(COMPLETIONS, 100)))
    await rig.submitted(2)
    rig.engine.answer()
    assert [(await answer)[0] for answer in (first, small)] == [200, 200]


async def test_body_above_the_memory_for_all_is_refused_alone(rig: Rig) -> None:
    status, _, document = await rig.ask(COMPLETIONS, body(COMPLETIONS, BODIES))
    assert (status, document["error"]["message"]) == (413, f"body: must be at most {BODIES} bytes")


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
@pytest.mark.parametrize("characters", [100, 200_000], ids=["small", "large"])
async def test_body_is_not_kept_while_its_answer_is_generated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, path: str, characters: int
) -> None:
    parsed: list[weakref.ref[Any]] = []
    parse = requests.parse

    def parse_and_watch(kind: Any, data: bytes, memory: int) -> Any:
        document = parse(kind, data, memory)
        parsed.append(weakref.ref(document))
        return document

    monkeypatch.setattr(requests, "parse", parse_and_watch)
    answer = asyncio.create_task(rig.ask(path, body(path, characters)))
    await rig.submitted(1)
    gc.collect()
    assert [document() for document in parsed] == [None]
    assert rig.large.received_bytes == 0
    rig.engine.answer()
    assert (await answer)[0] == 200


async def test_request_to_a_full_engine_is_refused_before_it_costs_tokens(rig: Rig) -> None:
    rig.engine.is_full = True
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    status, headers, document = await rig.ask(CHATS, body)
    assert (status, headers[b"retry-after"]) == (429, b"1")
    assert document["error"]["code"] == "engine_full"
    assert not rig.vocabulary.threads


@pytest.mark.parametrize(("path", "status"), [("/v1/unknown", 404), (CHATS, 413)])
async def test_body_is_read_to_its_end_when_it_is_refused(rig: Rig, path: str, status: int) -> None:
    parts = [
        {"type": "http.request", "body": bytes(BODIES), "more_body": more} for more in (True, True, False)
    ]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    async def send(message: Any) -> None:
        assert not parts
        sent.append(message)

    await rig.app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    assert sent[0]["status"] == status


async def test_request_without_memory_for_its_body_has_no_code_of_the_engine(rig: Rig) -> None:
    room = BodyRoom(rig.large)
    assert room.grow(BODIES)
    status, _, document = await rig.ask(COMPLETIONS, body(COMPLETIONS, 100_000))
    room.release()
    assert (status, document["error"]["code"]) == (429, None)
