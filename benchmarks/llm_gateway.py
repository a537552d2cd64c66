"""Streamed chats through the gateway beside the engine itself, the smallest Envoy configuration, and LiteLLM.

All take turns with the same engine, which streams at a steady pace. The time to the first token is that of an
open loop at a fixed rate. What a proxy costs is CPU time of its processes for
one chat, so that engine and load, which are slower than an Envoy, do not bound the comparison. LiteLLM,
vLLM's router (`pip install vllm-router`) and that of its production stack
(https://github.com/vllm-project/production-stack) take every third turn, each if its command is known.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig import interrupts
from rig.data_plane import proxies
from rig.data_plane.envoy_world import service, world
from rig.data_plane.proxies import free_port, running
from rig.data_plane.streams import streams
from rig.harness import Bar, at_least, at_most, interval, percentile, process_seconds, report, resident_mib

from serving.router.plan.service import Endpoint

DIRECT, OURS, SMALLEST = "direct", "slipway", "minimal-envoy"
LITELLM, VLLM_ROUTER, PRODUCTION_STACK = "litellm", "vllm-router", "vllm-production-stack"
RATE = 100.0
"""Chats per second, of 16 tokens each."""
TOKENS = 16
SLOW_RATE = 20.0
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
    first: list[list[float]] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    """CPU milliseconds of one chat, by turn."""
    failed: int = 0


async def main(*, quick: bool, commands: dict[str, str | None]) -> None:
    turns, seconds = (3, 2.0) if quick else (30, 4.0)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-llm-gateway-")))
        port = free_port()
        stack.enter_context(
            running(proxies.LOAD_CORE, port, sys.executable, str(RIG / "stream_engine.py"), str(port))
        )
        contenders = {DIRECT: Contender(f"http://127.0.0.1:{port}")}
        gateway, envoy = await stack.enter_async_context(world())
        for thread in os.listdir(f"/proc/{envoy.pid}/task"):  # noqa: PTH208 a path of numbers, in memory
            os.sched_setaffinity(int(thread), {int(proxies.PROXY_CORE)})
        endpoints = [Endpoint("127.0.0.1", port)]
        chat = replace(service("chat", [("only", 10_000, endpoints)]), token_usage="continuous")
        await gateway.serve([chat])
        contenders[OURS] = Contender(f"http://127.0.0.1:{gateway.port}/default/chat", envoy.pid)
        minimal = stack.enter_context(proxies.contender(SMALLEST, folder, (port, port)))
        contenders[SMALLEST] = Contender(f"http://127.0.0.1:{minimal}", proxies.listener(minimal))
        for name, other in OTHERS.items():
            command = commands[name]
            if command is None:
                print(f"SKIPPED {name}: its command is not installed (--{name})", file=sys.stderr)
                continue
            address = free_port()
            options = [command, "--host", "127.0.0.1", "--port", str(address), *other.options(folder, port)]
            stack.enter_context(running(proxies.PROXY_CORE, address, *options, seconds=PATIENCE_SECONDS))
            contenders[name] = Contender(f"http://127.0.0.1:{address}", proxies.listener(address), other.rate)
        for contender in contenders.values():
            await turn(replace(contender, first=[], cost=[]), 1.0)  # warm
        for number in range(turns):
            with_others = number % OTHERS_EVERY == 0
            order = [each for name, each in contenders.items() if with_others or name not in OTHERS]
            for contender in order if number % 2 else reversed(order):
                await turn(contender, seconds)
            print(f"{number + 1} of {turns} turns", file=sys.stderr)
        summary = {name: of_contender(contender) for name, contender in contenders.items()}
        summary[OURS]["residentMiB"] = resident_mib(envoy.pid)
    held = {
        "chats": await streams(1000, 5 if quick else 120, chats=True),
        "others": await streams(1000, 5 if quick else 20),
    }
    report("llm_gateway", {"contenders": summary, "streams": held}, bars(contenders))


async def turn(contender: Contender, seconds: float) -> None:
    before = cpu_seconds(contender.pid)
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", proxies.LOAD_CORE, sys.executable, str(RIG / "stream_load.py"), contender.url,
        str(contender.rate), str(seconds), str(TOKENS), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    result = json.loads(output)
    answered = len(result["first"])
    contender.first.append(result["first"])
    contender.failed += result["failed"]
    if contender.pid and answered:
        contender.cost.append(1000 * (cpu_seconds(contender.pid) - before) / answered)


def cpu_seconds(pid: int) -> float:
    """Of a process and its children, which LiteLLM may have."""
    if not pid:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return process_seconds(pid) + sum(process_seconds(int(child)) for child in children)


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
    rate: float
    """Chats per second; proxies that are written in Python get fewer."""
    command: str | None
    """Its default command; None if it shares the name with another proxy."""


OTHERS = {
    LITELLM: Other(litellm, SLOW_RATE, "litellm"),
    VLLM_ROUTER: Other(vllm_router, RATE, "vllm-router"),  # the package of this name, written in Rust
    PRODUCTION_STACK: Other(production_stack, SLOW_RATE, None),
}


def of_contender(contender: Contender) -> dict[str, object]:
    every = [value for values in contender.first for value in values]
    result: dict[str, object] = {
        "chatsPerSecond": contender.rate,
        "chats": len(every),
        "failed": contender.failed,
        "firstTokenP50Ms": round(percentile(every, 50), 2),
        "firstTokenP99Ms": round(percentile(every, 99), 2),
    }
    if contender.cost:
        result["cpuMsPerChat"] = interval(contender.cost)
    return result


def bars(contenders: dict[str, Contender]) -> list[Bar]:
    ours, direct = contenders[OURS], contenders[DIRECT]
    added = {
        percent: [
            percentile(own, percent) - percentile(base, percent)
            for own, base in zip(ours.first, direct.first, strict=True)
        ]
        for percent in (50, 99)
    }
    ratios = [base / own for own, base in zip(ours.cost, contenders[SMALLEST].cost, strict=True)]
    result = [
        at_most("first token added, p50, ms", interval(added[50]), 2.0),
        at_most("first token added, p99, ms", interval(added[99]), 10.0),
        at_least("chats per CPU second / smallest Envoy configuration", interval(ratios), 0.9),
    ]
    if LITELLM in contenders:
        theirs = contenders[LITELLM].cost
        times = [base / own for own, base in zip(ours.cost[::OTHERS_EVERY], theirs, strict=True)]
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
