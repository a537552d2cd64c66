"""Streamed chats, several at once, each asking again as its answer ends."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from rig.language.engines import RunningEngine

TOKENS = 48
"""Of an answer."""
_NUMBERS = itertools.count(1000)
"""The first words of prompts, of four digits: no prompt begins like another, and all have the same length.
Ours and the continuous batching of Transformers keep earlier prompts."""
_WORDS = "the ship left the harbour with grain and came to the port in the evening of the third day "


@dataclass(frozen=True)
class ChatRun:
    """The answers of one run."""

    tokens_per_second: float
    first: Sequence[float]
    """Seconds from each request to the first text of its answer."""
    failed: int


async def chats(engine: RunningEngine, streams: int, answers: int) -> ChatRun:
    """Ask for `answers` answers by `streams` streams."""
    numbers = itertools.islice(_NUMBERS, answers)
    first: list[float] = []
    failed = 0

    async def stream(session: aiohttp.ClientSession) -> None:
        nonlocal failed
        for number in numbers:
            began = time.perf_counter()
            try:
                first.append((await _answer(session, engine, [_question(number)])).first_at - began)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                failed += 1

    async with _session() as session:
        began = time.perf_counter()
        await asyncio.gather(*(stream(session) for _ in range(streams)))
        took = time.perf_counter() - began
    return ChatRun((answers - failed) * TOKENS / took, first, failed)


async def conversation(engine: RunningEngine, turns: int) -> list[float]:
    """Have one chat, each turn of which sends all earlier turns; return the seconds from each request to the
    first text of its answer.

    Raises:
        ValueError: an answer is not complete.
    """
    number, first = next(_NUMBERS), []
    messages: list[dict[str, str]] = []
    async with _session() as session:
        for _ in range(turns):
            messages.append(_question(number))
            began = time.perf_counter()
            answer = await _answer(session, engine, messages)
            first.append(answer.first_at - began)
            messages.append({"role": "assistant", "content": answer.text})
    return first


@dataclass(frozen=True)
class _Answer:
    text: str
    first_at: float
    """When the first text came, by `time.perf_counter`."""


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=300)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))


def _question(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"{number} {_WORDS}"}


async def _answer(
    session: aiohttp.ClientSession, engine: RunningEngine, messages: Sequence[dict[str, str]]
) -> _Answer:
    """Read one answer to its end.

    Raises:
        ValueError: the answer is not complete.
    """
    body = {
        "model": engine.model,
        "messages": messages,
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    text, at = "", 0.0
    finish = None
    url = f"http://127.0.0.1:{engine.port}/v1/chat/completions"
    async with session.post(url, json=body) as response:
        if response.status != 200:
            raise ValueError(await response.text())
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in orjson.loads(line[6:]).get("choices", ()):
                text += choice["delta"].get("content") or ""
                if text and not at:
                    at = time.perf_counter()
                finish = choice.get("finish_reason") or finish
    if not at or finish != "length":
        raise ValueError(f"an answer ended with {finish}")
    return _Answer(text, at)
