"""The requests that a gateway reports as waiting, and the load of the engines that the autoscaler sees."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.observation import EngineLoad
from autoscaler.policy.config import Metric
from autoscaler.policy.tokens import HEADROOM, TokenRates
from autoscaler.signals.board import Reading
from autoscaler.signals.exposition import Parser, ScaleTargetName, TargetTokens
from autoscaler.signals.token_board import QUEUED_SECONDS, TokenBoard
from serving import clock
from serving.router.metrics import token_page
from serving.router.metrics.labels import Labels
from serving.router.plan.service import Cluster, Endpoint
from tests.rig.servers.activator import activator, until_waiting
from tests.rig.servers.chat import ChatRig, chatting, engine_address
from tests.rig.servers.gateway import route

CLUSTER = Cluster("default/chat-a/8080", ())
TARGET = ScaleTargetName("default", "chat-a")


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[ChatRig]:
    async with chatting(tmp_path) as chat:
        yield chat


def reported(chat: ChatRig, after: float = 0.0) -> TargetTokens:
    """Return the tokens on the gateway's metrics page, as the autoscaler reads it in `after` seconds."""
    labels = {CLUSTER.name: Labels("default", "chat", "a", "chat-a")}
    now = clock.now().timestamp() + after
    page = token_page.families({CLUSTER.name: chat.counts()}, labels, now)
    return Parser().page(page).tokens[TARGET]


def queued(chat: ChatRig) -> float:
    """Return the requests that wait for an engine by the autoscaler, once they are old enough to count."""
    board = TokenBoard()
    for at in (0.0, 10 * QUEUED_SECONDS):
        board.tick([Reading("g", at, 1.0, {}, tokens={TARGET: reported(chat, at)})], at)
    load = board.engine_load(TARGET, 1)
    assert load is not None
    return load.waiting


async def test_stream_without_a_first_token_waits_for_an_engine(chat: ChatRig) -> None:
    await chat.serve("continuous")
    chat.engine.released.clear()
    asked = asyncio.create_task(chat.ask(stream=True, max_tokens=40))
    await chat.until(lambda counts: counts.waiting("prompt") > 0)
    assert queued(chat) == 1
    chat.engine.released.set()
    await asked


async def test_request_waits_for_no_engine_when_its_answer_is_not_streamed(chat: ChatRig) -> None:
    await chat.serve("continuous")
    chat.engine.released.clear()
    asked = asyncio.create_task(chat.ask(max_tokens=40))
    await chat.until(lambda counts: counts.waiting("prompt") > 0)
    assert queued(chat) == 0
    tokens = reported(chat, 10.0)
    assert tokens.waiting > 40  # until its end
    assert (tokens.queued, tokens.age) == (0, 0)
    chat.engine.released.set()
    await asked
    await chat.until_settled()
    assert reported(chat).waiting == 0


async def test_capacity_is_not_learned_from_a_slow_answer_that_is_not_streamed(chat: ChatRig) -> None:
    await chat.serve("continuous")
    rates = TokenRates([Metric("TokensPerSecond", "TokensPerSecond", None)])
    rates.learn(EngineLoad(1000.0, 1, read_at=1.0), None)
    chat.engine.released.clear()
    asked = asyncio.create_task(chat.ask(max_tokens=40))
    await chat.until(lambda counts: counts.waiting("prompt") > 0)
    for at in (2.0, 3.0):
        rates.learn(EngineLoad(50.0, 1, waiting=queued(chat), read_at=at), None)
    assert rates.capacity == 1000.0 * HEADROOM
    chat.engine.released.set()
    await asked


async def test_request_at_zero_waits_with_its_tokens_and_age_until_a_replica_streams(chat: ChatRig) -> None:
    at_zero = route("chat", [("a", 10_000)], on_demand="a")
    at_zero["spec"]["tokenUsage"] = "continuous"
    async with activator(chat.rig, CLUSTER) as held_backend:
        await chat.rig.serve([at_zero], [])
        asked = asyncio.create_task(chat.ask(stream=True, max_tokens=40))
        await until_waiting(held_backend, lambda: 1)
        tokens = reported(chat)
        assert tokens.queued == 1
        assert tokens.waiting == chat.counts().waiting("prompt") + 40 > 40
        assert tokens.age < 10 <= reported(chat, 10.0).age
        chat.engine.stop_after = 16
        held_backend.set_replicas([Endpoint(engine_address(), 8080)])
        await chat.until(lambda counts: counts.waiting("output") == 40 - 16)
        assert reported(chat) == TargetTokens(processed=reported(chat).processed, waiting=40 - 16)
        asked.cancel()
        await asyncio.wait([asked])
        await chat.until_settled()
    assert reported(chat).waiting == 0
