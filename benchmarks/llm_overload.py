"""A language model with more clients than it takes: liveness probes, answers and refusals.

Our runtime with one core, which its model uses too, and clients that ask again at once, each time with a new
connection: first as many as the engine generates for together, then far more than its queue takes. Beside
them a liveness probe is sent as the kubelet sends it. The load and the probes run on the other core.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import os
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from rig import interrupts
from rig.data_plane.proxies import LOAD_CORE
from rig.harness import Bar, Interval, at_least, interval, percentile, report
from rig.language import engines
from rig.language.chat_load import chats
from rig.language.engines import OURS, RunningEngine

from serving.settings import DEFAULTS

FULL = DEFAULTS.runtimes.sequences
"""Clients that fill the engine's batch."""
CLIENTS = 700
"""More than the engine's batch and its queue."""
TOKENS = 16
PROBE_SECONDS = 0.25
"""Between two probes; the kubelet's are two seconds apart."""
PROBE_TIMEOUT = 2.0
"""Of a runtime's liveness probe."""
WARM_SECONDS = 3.0
"""From the first clients until the load is counted."""


@dataclass
class Load:
    """The requests that ended within one turn."""

    seconds: float
    answered: int = 0
    refused: int = 0
    """With 429."""
    failed: int = 0
    probes: list[float] = field(default_factory=list)
    """Seconds until the answer of each probe; PROBE_TIMEOUT for a failed one."""

    @property
    def failed_probes(self) -> int:
        return sum(seconds >= PROBE_TIMEOUT for seconds in self.probes)


async def main(*, quick: bool) -> None:
    if importlib.util.find_spec("transformers") is None:
        sys.exit("transformers is not installed: pip install 'slipway[llm]'")
    from rig.language import checkpoint  # noqa: PLC0415 it imports PyTorch

    turns, seconds = (1, 5.0) if quick else (5, 15.0)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-overload-")))
        (folder / "checkpoint").mkdir()
        checkpoint.write(folder / "checkpoint", width=256, layers=6)
        engine = stack.enter_context(engines.engine(OURS, folder / "checkpoint", folder))
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, {int(LOAD_CORE)})
        await chats(engine, 1, 1)  # warm
        loads: dict[int, list[Load]] = {FULL: [], CLIENTS: []}
        for _ in range(turns):
            for clients, results in loads.items():
                results.append(await _turn(engine, clients, seconds))
                _show(clients, results[-1])
    full, overloaded = loads[FULL], loads[CLIENTS]
    kept = interval(
        [
            more.answered / more.seconds / (less.answered / less.seconds)
            for less, more in zip(full, overloaded, strict=True)
        ]
    )
    summaries = {str(clients): _summary(turns) for clients, turns in loads.items()}
    report("llm_overload", {"clients": summaries, "answersOverFull": kept}, bars(overloaded, kept))


def bars(overloaded: list[Load], kept: Interval) -> list[Bar]:
    """Return the bars: no probe fails, no request ends in another way than by its answer or a 429, and the
    refusals cost less than half of the answers."""
    failed_probes = sum(load.failed_probes for load in overloaded)
    failed = sum(load.failed for load in overloaded)
    return [
        Bar("failed liveness probes under overload", failed_probes, 0, failed_probes == 0),
        Bar("failed requests under overload", failed, 0, failed == 0),
        at_least("answers per second over those with a full batch", kept, 0.5),
    ]


async def _turn(engine: RunningEngine, clients: int, seconds: float) -> Load:
    """Load the engine for WARM_SECONDS and `seconds`, and return what ended in the latter."""
    counted = Load(seconds)
    begins = time.monotonic() + WARM_SECONDS
    ends = begins + seconds
    probing = asyncio.create_task(asyncio.to_thread(_probe, engine, begins, ends))
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(
            *(_client(session, engine, number, counted, begins, ends) for number in range(clients))
        )
    counted.probes = await probing
    return counted


async def _client(
    session: aiohttp.ClientSession,
    engine: RunningEngine,
    number: int,
    counted: Load,
    begins: float,
    ends: float,
) -> None:
    """Ask again and again until the turn ends."""
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": f"{number}: where did the ship go after the harbour?"}],
        "max_tokens": TOKENS,
        "temperature": 0,
    }
    url = f"http://127.0.0.1:{engine.port}/v1/chat/completions"
    while time.monotonic() < ends:
        status = 0
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.post(url, json=body) as response:
                await response.read()
                status = response.status
        if not begins <= time.monotonic() < ends:
            continue
        if status == 200:
            counted.answered += 1
        elif status == 429:
            counted.refused += 1
        else:
            counted.failed += 1


def _probe(engine: RunningEngine, begins: float, ends: float) -> list[float]:
    """Send liveness probes within the turn, each with a new connection; return their times."""
    times = []
    time.sleep(max(0.0, begins - time.monotonic()))
    while (began := time.monotonic()) < ends:
        try:
            url = f"http://127.0.0.1:{engine.port}/v2/health/live"
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT) as response:
                response.read()
            times.append(min(PROBE_TIMEOUT, time.monotonic() - began))
        except OSError:
            times.append(PROBE_TIMEOUT)
        time.sleep(max(0.0, began + PROBE_SECONDS - time.monotonic()))
    return times


def _summary(loads: list[Load]) -> dict[str, object]:
    probes = [1000 * seconds for load in loads for seconds in load.probes]
    return {
        "answersPerSecond": interval([load.answered / load.seconds for load in loads]),
        "refusalsPerSecond": interval([load.refused / load.seconds for load in loads]),
        "failed": sum(load.failed for load in loads),
        "probes": len(probes),
        "failedProbes": sum(load.failed_probes for load in loads),
        "probeMsP50": round(percentile(probes, 50), 1),
        "probeMsP99": round(percentile(probes, 99), 1),
        "probeMsMax": round(max(probes), 1),
    }


def _show(clients: int, load: Load) -> None:
    print(
        f"{clients} clients: {load.answered / load.seconds:.0f} answers/s, {load.refused / load.seconds:.0f}"
        f" refusals/s, {load.failed} failed; probes at most {1000 * max(load.probes):.0f} ms,"
        f" {load.failed_probes} failed",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one turn of five seconds each")
    options = parser.parse_args()
    interrupts.run(main(**vars(options)))
