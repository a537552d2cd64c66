"""The gateway's counts of tokens beside those of the engine: their sums, and the queue under a burst.

A tenth of the requests is cancelled: streams after some of their tokens, other requests while their answer is
awaited. Then bursts of requests meet the engine, and both queues are read every 20 ms: their correlation, and
the lag at which it is highest.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import numpy as np
from rig import interrupts
from rig.data_plane.envoy_world import service, world
from rig.harness import Bar, report
from rig.language import engines
from rig.language.engines import OURS

from serving.router.envoy.counts.count_table import CountTable
from serving.router.envoy.counts.token_counts import PAIRS, TokenCounts
from serving.router.plan.service import Endpoint

USERS = 32
CANCELLED = 0.1
BURST = 150
"""Requests of a burst: the engine generates 64 together."""
SAMPLE_SECONDS = 0.02
"""A burst takes about a second."""
LAGS = range(-15, 16)
"""Samples."""
LEAST_OVERLAP = 2 / 3
"""Of the samples of both queues: two falling queues correlate at any lag that leaves few of them."""
_SAMPLE = re.compile(r"^(\S+?)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class EnginePage:
    prompt_tokens: float
    generated_tokens: float
    waiting_prompt_tokens: float


class Clients:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, f"{url}/v1/chat/completions"
        self._random = random.Random(0)
        self.cancelled_streams = self.cancelled_answers = self.failed = self.ended = 0
        self._answer_seconds: float | None = None
        """Of the last answer that was not streamed and not cancelled."""

    async def ask(self, *, may_cancel: bool) -> None:
        """One request of 8 to 40 tokens, half of them streamed with numbers of tokens."""
        draw = self._random
        number = draw.randint(8, 40)
        words = "the ship came to the port with grain " * draw.randint(1, 12)
        body = {
            "model": "model",
            "messages": [{"role": "user", "content": words}],
            "max_tokens": number,
            "temperature": 0,
            "stream": draw.random() < 0.8,
        }
        if body["stream"] and draw.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        cut = draw.randint(0, number - 1) if may_cancel and draw.random() < CANCELLED else None
        wait: float | None = None
        if cut is not None and not body["stream"] and self._answer_seconds is not None:
            wait = self._answer_seconds * cut / number
        began = time.monotonic()
        try:
            async with asyncio.timeout(wait), self._session.post(self._url, json=body) as response:
                if response.status != 200:
                    self.failed += 1
                    return
                events = 0
                async for line in response.content:
                    events += line.startswith(b"data:")
                    if cut is not None and body["stream"] and events > cut:
                        self.cancelled_streams += 1
                        response.close()
                        return
            if not body["stream"]:
                self._answer_seconds = time.monotonic() - began
            self.ended += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            if wait is not None and isinstance(error, TimeoutError):
                self.cancelled_answers += 1
            else:
                self.failed += 1


async def main(*, quick: bool) -> None:
    if importlib.util.find_spec("transformers") is None:
        sys.exit("transformers is not installed: pip install 'slipway[llm]'")
    from rig.language import checkpoint  # noqa: PLC0415 it imports PyTorch

    requests, bursts = (400, 1) if quick else (10_000, 5)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-llm-tokens-")))
        (folder / "checkpoint").mkdir()
        checkpoint.write(folder / "checkpoint", width=64, layers=2)
        engine = stack.enter_context(engines.engine(OURS, folder / "checkpoint", folder))
        async with (
            world() as (gateway, envoy),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            chat = service("chat", [("only", 10_000, [Endpoint("127.0.0.1", engine.port)])])
            await gateway.serve([replace(chat, token_usage="continuous")])
            table = CountTable(envoy.pid)
            clients = Clients(session, f"http://127.0.0.1:{gateway.port}/default/chat")
            sums = await agree(session, table, engine.port, clients, requests)
            queues = [await burst(session, table, engine.port, clients) for _ in range(bursts)]
    results = {
        **sums,
        "burstCorrelation": round(float(np.median([queue[0] for queue in queues])), 4),
        "burstLagSeconds": round(float(np.median([queue[1] for queue in queues])), 2),
        "requests": requests,
        "cancelledStreams": clients.cancelled_streams,
        "cancelledAnswers": clients.cancelled_answers,
        "failed": clients.failed,
    }
    bars = [
        Bar(f"{kind} tokens of the gateway, difference from the engine's", sums[f"{kind}Difference"], 0.01,
            sums[f"{kind}Difference"] <= 0.01)
        for kind in ("prompt", "generated")
    ]  # fmt: skip
    waiting = sum(sums[f"{name}LeftOver"] for name in PAIRS)
    bars += [
        Bar("what waits at the end", waiting, 0, waiting == 0),
        Bar("failed requests", clients.failed, 0, clients.failed == 0),
    ]
    report("llm_tokens", results, bars)


async def agree(
    session: aiohttp.ClientSession, table: CountTable, port: int, clients: Clients, requests: int
) -> dict[str, float]:
    """Send the requests; return both sums."""
    left = iter(range(requests))

    async def use() -> None:
        for number in left:
            if number % 500 == 0:
                print(f"{number} of {requests} requests", file=sys.stderr, flush=True)
            await clients.ask(may_cancel=True)

    before, began = await engine_page(session, port), time.monotonic()
    await asyncio.gather(*(use() for _ in range(USERS)))
    took = time.monotonic() - began
    await asyncio.sleep(0.5)
    after, counts = await engine_page(session, port), counted(table)
    engine = {
        "prompt": after.prompt_tokens - before.prompt_tokens,
        "generated": after.generated_tokens - before.generated_tokens,
    }
    own = {"prompt": counts.prompt_tokens, "generated": counts.generated_tokens}
    result: dict[str, float] = {"seconds": round(took, 1)}
    for kind, number in engine.items():
        result[f"{kind}Engine"], result[f"{kind}Gateway"] = number, own[kind]
        result[f"{kind}Difference"] = round(abs(own[kind] - number) / number, 5)
    result |= {f"{name}LeftOver": counts.waiting(name) for name in PAIRS}
    return result


async def burst(
    session: aiohttp.ClientSession, table: CountTable, port: int, clients: Clients
) -> tuple[float, float]:
    """Send a burst; return the correlation of waiting prompt tokens, and the gateway's lag in seconds."""
    asked = [asyncio.create_task(clients.ask(may_cancel=False)) for _ in range(BURST)]
    own: list[float] = []
    engine: list[float] = []
    first = time.monotonic()
    while not all(task.done() for task in asked):
        began = time.monotonic()
        counts, page = counted(table), await engine_page(session, port)
        own.append(counts.waiting("prompt"))
        engine.append(page.waiting_prompt_tokens)
        await asyncio.sleep(max(0.0, SAMPLE_SECONDS - (time.monotonic() - began)))
    await asyncio.gather(*asked)
    period = (time.monotonic() - first) / len(own)
    best = max(LAGS, key=lambda lag: (correlation(own, engine, lag), -abs(lag)))
    return correlation(own, engine, best), -best * period


def correlation(own: list[float], engine: list[float], lag: int) -> float:
    """Return the correlation of the gateway's samples with the engine's, `lag` samples later."""
    if len(own) - abs(lag) < max(2, LEAST_OVERLAP * len(own)):
        return 0.0
    first = own[: len(own) - lag] if lag >= 0 else own[-lag:]
    second = engine[lag:] if lag >= 0 else engine[:lag]
    if np.std(first) == 0 or np.std(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def counted(table: CountTable) -> TokenCounts:
    return table.tokens("default/chat-only/8080")


async def engine_page(session: aiohttp.ClientSession, port: int) -> EnginePage:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        values = {name: float(value) for name, value in _SAMPLE.findall(await response.text())}
    return EnginePage(
        values["vllm:prompt_tokens_total"],
        values["vllm:generation_tokens_total"],
        values["slipway_prompt_tokens_waiting"],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
