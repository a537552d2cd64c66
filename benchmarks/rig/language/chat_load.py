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
The continuous batching of Transformers keeps the prompts of earlier requests, and ours does not."""
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
                first.append(await _first_text(session, engine, number) - began)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                failed += 1

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter()
        await asyncio.gather(*(stream(session) for _ in range(streams)))
        took = time.perf_counter() - began
    return ChatRun((answers - failed) * TOKENS / took, first, failed)


async def _first_text(session: aiohttp.ClientSession, engine: RunningEngine, number: int) -> float:
    """Read one answer to its end; return the time of its first text.

    Raises:
        ValueError: the answer is not complete.
    """
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": f"{number} {_WORDS}"}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    at = 0.0
    finish = None
    url = f"http://127.0.0.1:{engine.port}/v1/chat/completions"
    async with session.post(url, json=body) as response:
        if response.status != 200:
            raise ValueError(await response.text())
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in orjson.loads(line[6:]).get("choices", ()):
                if choice["delta"].get("content") and not at:
                    at = time.perf_counter()
                finish = choice.get("finish_reason") or finish
    if not at or finish != "length":
        raise ValueError(f"an answer ended with {finish}")
    return at
