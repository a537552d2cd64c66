"""Instructions that Envoy executes for one small request, with the gateway's configuration and without parts
of it.

Valgrind's callgrind counts them: the difference of two runs over their difference in requests. Unlike
timings, the count is the same on a busy machine. It excludes the kernel. Beside instructions it counts what
makes them slow: lines of code that a simulated cache of the processor does not have, and branches that a
simulated predictor gets wrong. Each configuration takes two minutes.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import orjson
from gateway import BODY, arms, bystanders
from google.protobuf.message import Message
from rig import interrupts
from rig.data_plane import proxies
from rig.data_plane.envoy_world import EnvoyWorld
from rig.harness import report

from serving.router.envoy import routes
from serving.router.envoy.bootstrap import bootstrap, grpc_bridge
from serving.router.envoy.local_replies import Json
from serving.router.envoy.process.binary import find_envoy
from serving.router.envoy.routes import ASSIGN_FILTER
from serving.router.envoy.token_filters import MODELS_FILTER, TOKENS_FILTER
from serving.router.xds.grpc_server import listening

Ask = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Sends a request and reads the whole response; returns whether its status is 200."""
FEW, MANY = 100, 1100
SIMULATION = (
    "--cache-sim=yes",
    "--branch-sim=yes",
    # Those of AMD's Zen 3 on any machine: bytes, ways, bytes of a line.
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=524288,8,64",
)
EVENTS = ["Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw", "Bc", "Bcm", "Bi", "Bim"]
"""What callgrind prints as collected, in this order."""
START_SECONDS = 300.0
SMALLEST = "smallest"


class Cost(NamedTuple):
    """What a run, or one request, takes."""

    instructions: int
    code_misses: int
    """Reads of code that the cache of the first level does not have."""
    mispredicted: int
    """Branches, conditional and indirect ones."""


def without(*names: str) -> Callable[[Json], None]:
    """Remove these from the connection manager."""

    def drop(manager: Json) -> None:
        for name in names:
            del manager[name]

    return drop


def with_statistics(manager: Json) -> None:
    """Let Envoy count answers, as in the smallest configuration, instead of its module."""
    manager["http_filters"][-1]["typed_config"]["dynamic_stats"] = True
    del manager["access_log"]


def without_filters(*names: str) -> Callable[[Json], None]:
    """Remove these filters, which are off for this request."""

    def drop(manager: Json) -> None:
        manager["http_filters"] = [each for each in manager["http_filters"] if each["name"] not in names]

    return drop


def with_bridge(manager: Json) -> None:
    manager["http_filters"].insert(1, grpc_bridge())


MANAGERS: dict[str, Callable[[Json], None]] = {
    "counts of answers": without("access_log"),
    "with Envoy's statistics of answers": with_statistics,
    "sender's address": without("use_remote_address", "internal_address_config"),
    "normal paths": without("normalize_path", "merge_slashes"),
    "limit of arrival": without("request_timeout"),
    "filter that assigns callers": without_filters(ASSIGN_FILTER),
    "filters of language models": without_filters(MODELS_FILTER, TOKENS_FILTER),
    "with the bridge of gRPC": with_bridge,
}
PIECES = {
    "retries": "retry_policy",
    "response headers": "response_headers_to_add",
    "idle timeout of routes": "idle_timeout",
}
"""Fields of a route, at any depth."""
EJECTION = "ejection"
OVERLOAD = "limits of connections and memory"


def prune(message: Message, field: str) -> None:
    """Clear a field in a message and in all nested ones."""
    for descriptor, value in message.ListFields():
        if descriptor.name == field:
            message.ClearField(field)
        elif descriptor.message_type is not None and not descriptor.message_type.GetOptions().map_entry:
            for nested in value if descriptor.is_repeated else [value]:
                prune(nested, field)


async def count(config: bytes, folder: Path, ask: Ask, port: int, requests: int) -> Cost:
    """Run Envoy under callgrind for this many requests; return its total cost."""
    (folder / "bootstrap.json").write_bytes(config)
    process = await asyncio.create_subprocess_exec(
        "valgrind",
        "--tool=callgrind",
        *SIMULATION,
        f"--callgrind-out-file={folder / 'callgrind'}",
        find_envoy(),
        "-c",
        str(folder / "bootstrap.json"),
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "--log-level",
        "error",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    stderr = asyncio.ensure_future(process.stderr.read())
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                if process.returncode is not None:
                    raise RuntimeError((await stderr).decode()[-500:]) from None
                await asyncio.sleep(0.2)
    while not await ask(reader, writer):  # noqa: ASYNC110 Envoy's word
        await asyncio.sleep(1)  # 50 times slower than usual, it listens before it has all services
    for _ in range(requests):
        if not await ask(reader, writer):
            raise RuntimeError("a request was refused")
    writer.close()
    process.terminate()
    match = re.search(r"Collected : ([\d ]+)", (await stderr).decode())
    if match is None:
        raise RuntimeError("callgrind has counted nothing")
    counts = dict(zip(EVENTS, map(int, match[1].split()), strict=True))
    return Cost(counts["Ir"], counts["I1mr"], counts["Bcm"] + counts["Bim"])


def getting(url: str) -> Ask:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"GET {url} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
        return head.startswith(b"http/1.1 200")

    return ask


async def ours(ports: tuple[int, int], services: int, leave_out: str, requests: int) -> Cost:
    original = routes._route  # noqa: SLF001 what a route has is not configurable, on purpose

    def route(*arguments: Any) -> Message:
        whole: Message = original(*arguments)
        if leave_out in PIECES:
            prune(whole, PIECES[leave_out])
        return whole

    differing = {"eject_consecutive_failures": 0} if leave_out == EJECTION else {}

    with (
        tempfile.TemporaryDirectory(prefix="slipway-cost-") as root,
        mock.patch.object(routes, "_route", route),
    ):
        world = EnvoyWorld(Path(root), **differing)
        config = bootstrap(world.settings.gateway, port=world.port, sockets=world.xds.sockets())
        manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        if leave_out in MANAGERS:
            MANAGERS[leave_out](manager)
        if leave_out == OVERLOAD:
            del config["overload_manager"]
        async with listening(world.xds):
            world.put([arms(ports), *bystanders(services - 1)])
            world.xds.set_target(world.renderer.render(world.table.take_changes()))
            ask = getting("/default/digits/v2/models/digits/infer")
            return await count(orjson.dumps(config), Path(root), ask, world.port, requests)


async def smallest(ports: tuple[int, int], ask: Ask, requests: int) -> Cost:
    """Return the cost of the smallest configuration that proxies to these ports."""
    with tempfile.TemporaryDirectory(prefix="slipway-cost-") as root:
        port = proxies.free_port()
        config = orjson.dumps(proxies.minimal_envoy(port, ports))
        return await count(config, Path(root), ask, port, requests)


async def each(name: str, run: Callable[[int], Awaitable[Cost]], few: int, many: int) -> Cost:
    """Return the cost of one request: the difference of two runs, without those of Envoy's start.

    Args:
        name: of the configuration, which is printed with the result.
        run: returns the cost of a run with this number of requests.
        few: requests of the first run.
        many: requests of the second run.
    """
    more, less = await run(many), await run(few)
    cost = Cost(*(round((high - low) / (many - few)) for high, low in zip(more, less, strict=True)))
    print(f"{name:32} " + " ".join(f"{count:>9,}" for count in cost), file=sys.stderr, flush=True)
    return cost


async def measure(ports: tuple[int, int], name: str) -> Cost:
    async def run(requests: int) -> Cost:
        if name == SMALLEST:
            return await smallest(ports, getting("/v2/models/digits/infer"), requests)
        services = 1000 if name == "1000 services" else 1
        return await ours(ports, services, name, requests)

    return await each(name, run, FEW, MANY)


NAMES = [SMALLEST, "whole", "1000 services", *MANAGERS, *PIECES, EJECTION, OVERLOAD]


async def main(names: Sequence[str]) -> None:
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: apt-get install valgrind")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-cost-")))
        ports = stack.enter_context(proxies.backends(folder, BODY.replace('"', '\\"')))
        costs = {name: await measure(ports, name) for name in names}
    report("request_cost", {name: cost._asdict() for name, cost in costs.items()}, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest configuration alone")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help="these configurations")
    options = parser.parse_args()
    interrupts.run(main([SMALLEST] if options.quick else options.only or NAMES))
