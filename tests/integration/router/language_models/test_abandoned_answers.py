"""Tokens of answers that are not streamed, and whose client disconnects before the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving import clock
from serving.router.envoy.counts.token_counts import PAIRS, Latencies, TokenCounts
from serving.router.plan.service import Cluster
from tests.rig.machine.addresses import own
from tests.rig.servers.activator import activator, until_waiting
from tests.rig.servers.chat import ChatRig, chatting, engine_address
from tests.rig.servers.gateway import endpoint_slice, route

MOST = 30
"""`max_tokens` of the requests that are abandoned."""


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[ChatRig]:
    async with chatting(tmp_path) as chat:
        yield chat


def mean(latencies: Latencies) -> float:
    return latencies.seconds / latencies.at_most[-1]


@contextlib.asynccontextmanager
async def asked_in_vain(chat: ChatRig) -> AsyncIterator[None]:
    """An unstreamed request that the engine has and does not answer; its client disconnects at the end."""
    chat.engine.released.clear()
    before = len(chat.engine.requests)
    asked = asyncio.create_task(chat.ask(max_tokens=MOST))
    async with asyncio.timeout(10):
        while len(chat.engine.requests) == before:
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        asked.cancel()
        await asyncio.wait([asked])


async def streamed(chat: ChatRig) -> TokenCounts:
    """Return the counts after one stream of `MOST` tokens, and a few more."""
    chat.engine.pause_seconds = 0.002  # else all events reach the gateway as one part
    await chat.ask(stream=True, max_tokens=MOST + 10)
    return await chat.until(lambda counts: counts.inter_token.at_most[-1] == MOST + 9)


async def test_prompt_is_estimated_when_the_client_of_an_unstreamed_answer_disconnects(chat: ChatRig) -> None:
    await chat.serve("continuous")
    async with asked_in_vain(chat):
        admitted = chat.counts().waiting("prompt")
    counts = await chat.until_settled()
    assert counts.prompt_tokens == admitted > 0
    assert counts.generated_tokens == 0  # no stream has shown the pace


async def test_answer_is_estimated_by_the_pace_of_streams_up_to_its_limit(chat: ChatRig) -> None:
    await chat.serve("continuous")
    before = await streamed(chat)
    async with asked_in_vain(chat):
        admitted = chat.counts().waiting("prompt")
        await asyncio.sleep(mean(before.first_token) + (MOST + 1) * mean(before.inter_token))
    counts = await chat.until_settled()
    assert counts.prompt_tokens - before.prompt_tokens == admitted
    assert counts.generated_tokens - before.generated_tokens == MOST


async def test_answer_counts_as_generated_when_the_client_disconnects_in_its_middle(chat: ChatRig) -> None:
    await chat.serve("continuous")
    chat.engine.stop_after = 0
    async with chat.asked(max_tokens=MOST) as response:
        assert await response.content.readany()
        admitted = chat.counts().waiting("prompt")
    counts = await chat.until_settled()
    assert counts.prompt_tokens == admitted > 0
    assert counts.generated_tokens == MOST


async def test_answer_is_not_estimated_when_streams_have_waited_longer_for_their_first_token(
    chat: ChatRig,
) -> None:
    await chat.serve("continuous")
    chat.engine.released.clear()
    stream = asyncio.create_task(streamed(chat))
    await asyncio.sleep(2)
    chat.engine.released.set()
    before, began = await stream, clock.monotonic()
    async with asked_in_vain(chat):
        pass
    assert clock.monotonic() - began < mean(before.first_token)  # the test's condition
    counts = await chat.until_settled()
    assert counts.prompt_tokens == before.prompt_tokens
    assert counts.generated_tokens == before.generated_tokens


async def test_prompt_is_counted_for_the_arm_of_the_retry_when_the_client_disconnects(chat: ChatRig) -> None:
    both = route("chat", [("dead", 5_000), ("a", 5_000)])
    both["spec"]["tokenUsage"] = "continuous"
    slices = [endpoint_slice("chat-dead", [own(117)]), endpoint_slice("chat-a", [engine_address()])]
    await chat.rig.serve([both], slices)
    for _ in range(20):
        async with asked_in_vain(chat):
            pass

    def dead() -> TokenCounts:
        return chat.rig.counts().tokens("default/chat-dead/8080")

    # A request waits at the first arm until its retry is answered, or its client disconnects.
    await chat.until(lambda _: not any(dead().waiting(name) for name in PAIRS))
    counts = await chat.until_settled()
    assert dead().counters["prompt_admitted"] > 0  # the test's condition: some went there first
    assert dead().prompt_tokens == 0
    assert counts.prompt_tokens == counts.counters["prompt_admitted"] > 0


async def test_nothing_is_counted_when_the_client_disconnects_while_the_activator_holds_its_request(
    chat: ChatRig,
) -> None:
    at_zero = route("chat", [("a", 10_000)], on_demand="a")
    at_zero["spec"]["tokenUsage"] = "continuous"
    async with activator(chat.rig, Cluster("default/chat-a/8080", ())) as held_backend:
        await chat.rig.serve([at_zero], [])
        asked = asyncio.create_task(chat.ask(max_tokens=MOST))
        await until_waiting(held_backend, lambda: 1)
        assert chat.counts().waiting("prompt") > 0
        asked.cancel()
        await asyncio.wait([asked])
        counts = await chat.until_settled()
    assert (counts.prompt_tokens, counts.generated_tokens) == (0, 0)
