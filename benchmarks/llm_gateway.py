"""Streamed chats through the gateway beside the engine itself, the smallest Envoy configuration, and LiteLLM.

All take turns with the same engine, which streams at a steady pace. The time to the first token is that of an
open loop at half of the chats per second that the gateway's core can serve. What a proxy costs is CPU time of
its processes for one chat, so that engine and load do not bound the comparison. LiteLLM,
vLLM's router (`pip install vllm-router`) and that of its production stack
(https://github.com/vllm-project/production-stack) take every third turn, each if its command is known.

For the cost beside the smallest Envoy, new processes are started several times, as in `gateway.py`. The two
have the same load at the same time on one core, as what else a shared machine does makes each chat dearer by
up to half for seconds: the interval is that of the ratios of the starts.
"""

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from rig import interrupts
from rig.data_plane import proxies
from rig.data_plane.envoy_world import service, world
from rig.data_plane.proxies import free_port, running
from rig.data_plane.streams import streams
from rig.harness import Bar, at_least, at_most, interval, percentile, report, resident_mib
from rig.language.stream_turns import StreamLoad, Turn, stream_load

from serving.router.plan.service import Endpoint

DIRECT, OURS, SMALLEST = "direct", "slipway", "minimal-envoy"
LITELLM, VLLM_ROUTER, PRODUCTION_STACK = "litellm", "vllm-router", "vllm-production-stack"
RATE = 100.0
"""Chats per second, of 16 tokens each, while the cost is measured."""
HALF = 0.5
"""Share of the gateway's core that chats take while the time to the first token is measured."""
TOKENS = 16
ENGINE_SECONDS = 0.02
"""`FIRST_SECONDS` of the engine."""
SLOW_RATE = 20.0
"""Of proxies that are written in Python."""
WARM_SECONDS = 4.0
"""Of load before the cost is measured: the gateway moves its heap into huge pages when it has grown."""
OTHERS_EVERY = 3
"""Turns between two of the other proxies."""
PATIENCE_SECONDS = 120.0
"""For a start: LiteLLM imports for half a minute."""
RIG = Path(__file__).parent / "rig" / "language"
LITELLM_CONFIG = """model_list:
- model_name: chat
  litellm_params: {{model: openai/chat, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
litellm_settings: {{telemetry: false}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
"""Without a key, as the other proxies have none."""


@dataclass
class Contender:
    url: str
    pid: int = 0
    """Of its first process; 0 for the engine itself."""
    rate: float = RATE
    """Chats per second."""
    turns: list[Turn] = field(default_factory=list)

    @property
    def first(self) -> list[list[float]]:
        """Times to the first token, in ms, by turn."""
        return [turn.first for turn in self.turns]

    @property
    def cost(self) -> list[float]:
        """CPU milliseconds of one chat, by turn; none of the engine itself."""
        turns = [turn for turn in self.turns if turn.first and self.pid]
        return [1000 * turn.processor_seconds / len(turn.first) for turn in turns]


async def main(*, quick: bool, commands: dict[str, str | None]) -> None:
    turns, seconds, starts = (3, 2.0, 2) if quick else (20, 4.0, 12)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-llm-gateway-")))
        port = free_port()
        stack.enter_context(
            running(proxies.LOAD_CORE, port, sys.executable, str(RIG / "stream_engine.py"), str(port))
        )
        costs = [await costs_beside_each_other(folder, port, 2 if quick else 8) for _ in range(starts)]
        half_load = 1000 * HALF / fmean(cost[OURS] for cost in costs)
        contenders = {DIRECT: Contender(f"http://127.0.0.1:{port}")}
        contenders |= await stack.enter_async_context(envoys(folder, port))
        for contender in contenders.values():
            contender.rate = half_load
        for name, other in OTHERS.items():
            command = commands[name]
            if command is None:
                print(f"SKIPPED {name}: its command is not installed (--{name})", file=sys.stderr)
                continue
            address = free_port()
            options = [command, "--host", "127.0.0.1", "--port", str(address), *other.options(folder, port)]
            stack.enter_context(running(proxies.PROXY_CORE, address, *options, seconds=PATIENCE_SECONDS))
            rate = half_load if other.is_compiled else SLOW_RATE
            contenders[name] = Contender(f"http://127.0.0.1:{address}", proxies.listener(address), rate)
        for contender in contenders.values():
            await turn(contender, 1.0)
            contender.turns.clear()  # it was not warm
        for number in range(turns):
            with_others = number % OTHERS_EVERY == 0
            order = [each for name, each in contenders.items() if with_others or name not in OTHERS]
            for contender in order if number % 2 else reversed(order):
                await turn(contender, seconds)
            print(f"{number + 1} of {turns} turns", file=sys.stderr)
        summary = {name: of_contender(contender) for name, contender in contenders.items()}
        summary[OURS]["residentMiB"] = resident_mib(contenders[OURS].pid)
    held = {
        "chats": await streams(1000, 5 if quick else 120, chats=True),
        "others": await streams(1000, 5 if quick else 20),
    }
    report("llm_gateway", {"contenders": summary, "streams": held}, bars(contenders, costs))


@contextlib.asynccontextmanager
async def envoys(folder: Path, engine: int) -> AsyncIterator[dict[str, Contender]]:
    """Start the gateway's Envoy and the smallest one before the engine at this port."""
    async with world() as (gateway, envoy):
        proxies.pin(envoy.pid)
        chat = service("chat", [("only", 10_000, [Endpoint("127.0.0.1", engine)])])
        await gateway.serve([replace(chat, token_usage="continuous")])
        ours = Contender(f"http://127.0.0.1:{gateway.port}/default/chat", envoy.pid)
        with proxies.contender(SMALLEST, folder, (engine, engine)) as port:
            smallest = Contender(f"http://127.0.0.1:{port}", proxies.listener(port))
            yield {OURS: ours, SMALLEST: smallest}


async def turn(contender: Contender, seconds: float) -> None:
    """Load a contender by new connections."""
    async with stream_load(TOKENS) as load:
        contender.turns.append(await load.turn(contender.url, contender.pid, contender.rate, seconds))


async def costs_beside_each_other(folder: Path, engine: int, turns: int) -> dict[str, float]:
    """Return CPU ms of a chat of new processes of ours and of the smallest Envoy.

    Both have RATE in each turn of a second, which ends with its last answer. In every second turn ours
    begins, in the others the smallest Envoy, as the second finds the kernel's code in the core's cache.
    """
    async with envoys(folder, engine) as pair, stream_load(TOKENS) as first, stream_load(TOKENS) as second:
        order = list(pair.values())
        await _turn_together((first, second), order, WARM_SECONDS)
        for contender in order:
            contender.turns.clear()
        for _ in range(turns):
            await _turn_together((first, second), order, 1.0)
            order.reverse()
        costs = {name: fmean(contender.cost) for name, contender in pair.items()}
        if any(each.failed for contender in pair.values() for each in contender.turns):
            raise RuntimeError("chats failed")
    print(f"CPU ms of a chat: {costs}", file=sys.stderr)
    return costs


async def _turn_together(
    loads: Sequence[StreamLoad], contenders: Sequence[Contender], seconds: float
) -> None:
    """Load contenders at the same time; the chats of each begin halfway between those of the one before."""

    async def turn_of(place: int) -> None:
        await asyncio.sleep(place / len(contenders) / RATE)
        contender = contenders[place]
        contender.turns.append(await loads[place].turn(contender.url, contender.pid, RATE, seconds))

    await asyncio.gather(*(turn_of(place) for place in range(len(contenders))))


def litellm(folder: Path, port: int) -> list[str]:
    config = folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(port=port))
    return ["--config", str(config)]


def vllm_router(_folder: Path, port: int) -> list[str]:
    workers = ["--worker-urls", f"http://127.0.0.1:{port}", "--policy", "round_robin"]
    return [*workers, "--prometheus-port", str(free_port())]


def production_stack(_folder: Path, port: int) -> list[str]:
    backends = ["--static-backends", f"http://127.0.0.1:{port}", "--static-models", "chat"]
    return ["--service-discovery", "static", "--routing-logic", "roundrobin", *backends]


@dataclass(frozen=True)
class Other:
    """Another proxy, which may be installed."""

    options: Callable[[Path, int], list[str]]
    """Of its command, by a folder for files and the engine's port."""
    is_compiled: bool
    """Whether it can serve as many chats as an Envoy."""
    command: str | None
    """Its default command; None if it shares the name with another proxy."""


OTHERS = {
    LITELLM: Other(litellm, is_compiled=False, command="litellm"),
    VLLM_ROUTER: Other(vllm_router, is_compiled=True, command="vllm-router"),  # written in Rust
    PRODUCTION_STACK: Other(production_stack, is_compiled=False, command=None),
}


def of_contender(contender: Contender) -> dict[str, object]:
    every = [value for values in contender.first for value in values]
    result: dict[str, object] = {
        "chatsPerSecond": round(contender.rate, 1),
        "chats": len(every),
        "failed": sum(turn.failed for turn in contender.turns),
        "firstTokenP50Ms": round(percentile(every, 50), 2),
        "firstTokenP99Ms": round(percentile(every, 99), 2),
    }
    if contender.cost:
        result["cpuMsPerChat"] = interval(contender.cost)
    return result


def bars(contenders: dict[str, Contender], costs: Sequence[Mapping[str, float]]) -> list[Bar]:
    ours, direct = contenders[OURS], contenders[DIRECT]
    added = {
        percent: [
            percentile(own, percent) - percentile(base, percent)
            for own, base in zip(ours.first, direct.first, strict=True)
        ]
        for percent in (50, 99)
    }
    # Above it, engine and load would have no time left on their core, and their delays hide a proxy's.
    on_time = interval([percentile(times, 50) for times in direct.first])
    ratios = [cost[SMALLEST] / cost[OURS] for cost in costs]
    failed = sum(turn.failed for each in (direct, ours, contenders[SMALLEST]) for turn in each.turns)
    result = [
        at_most("first token of the engine itself at half load, p50, ms", on_time, 1000 * ENGINE_SECONDS + 3),
        Bar("failed chats at half load", failed, 0, failed == 0),
        at_most("first token added at half load, p50, ms", interval(added[50]), 2.0),
        at_most("first token added at half load, p99, ms", interval(added[99]), 10.0),
        at_least("chats per CPU second / smallest Envoy configuration", interval(ratios, fmean), 0.9),
    ]
    if LITELLM in contenders:
        theirs = contenders[LITELLM].cost
        # Of ours at RATE, as a chat is cheaper at a higher load.
        own = fmean(cost[OURS] for cost in costs)
        times = [base / own for base in theirs]
        result.append(at_least("chats per CPU second / LiteLLM", interval(times), 10.0))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    for name, other in OTHERS.items():
        parser.add_argument(
            f"--{name}", default=other.command and shutil.which(other.command), help="its command"
        )
    options = parser.parse_args()
    commands = {name: getattr(options, name.replace("-", "_")) for name in OTHERS}
    interrupts.run(main(quick=options.quick, commands=commands))
