"""Instructions that Envoy executes for one streamed chat of 16 tokens, with and without token accounting.

As `request_cost.py`, which counts those of a small request. The events come so slowly that each is read
alone. Each configuration takes two minutes.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import orjson
import request_cost
from llm_gateway import RIG, SMALLEST, TOKENS
from rig import interrupts
from rig.data_plane import proxies
from rig.data_plane.envoy_world import EnvoyWorld, service
from rig.data_plane.proxies import free_port, running
from rig.harness import report
from rig.language.stream_load import PROMPT

from serving.router.envoy.bootstrap import bootstrap
from serving.router.plan.service import Endpoint
from serving.router.xds.grpc_server import listening

FEW, MANY = 4, 44
EVERY_SECONDS = 0.03
"""Between events: Envoy is 50 times slower in valgrind."""
WITHOUT, WITH = "without accounting", "with accounting"


def chatting(base: str) -> request_cost.Ask:
    messages = [{"role": "user", "content": PROMPT}]
    body = json.dumps({"model": "chat", "messages": messages, "stream": True, "max_tokens": TOKENS})
    head = f"POST {base}/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(request)
        status = await reader.readline()
        length = 0
        while (line := (await reader.readline()).lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if b" 200 " not in status:
            await reader.readexactly(length)
            return False
        return b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")

    return ask


async def ours(engine: int, name: str, chats: int) -> request_cost.Cost:
    usage = "none" if name == WITHOUT else "continuous"
    chat = replace(service("chat", [("only", 10_000, [Endpoint("127.0.0.1", engine)])]), token_usage=usage)
    with tempfile.TemporaryDirectory(prefix="slipway-cost-") as root:
        world = EnvoyWorld(Path(root))
        config = bootstrap(world.settings.gateway, port=world.port, sockets=world.xds.sockets())
        async with listening(world.xds):
            world.put([chat])
            world.xds.set_target(world.renderer.render(world.table.take_changes()))
            ask = chatting("/default/chat")
            return await request_cost.count(orjson.dumps(config), Path(root), ask, world.port, chats)


async def measure(engine: int, name: str) -> request_cost.Cost:
    async def run(chats: int) -> request_cost.Cost:
        if name == SMALLEST:
            return await request_cost.smallest((engine, engine), chatting(""), chats)
        return await ours(engine, name, chats)

    return await request_cost.each(name, run, FEW, MANY)


async def main(*, quick: bool) -> None:
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: apt-get install valgrind")
    names = [SMALLEST] if quick else [SMALLEST, WITHOUT, WITH]
    with contextlib.ExitStack() as stack:
        port = free_port()
        engine = [sys.executable, str(RIG / "stream_engine.py"), str(port), str(EVERY_SECONDS)]
        stack.enter_context(running(proxies.LOAD_CORE, port, *engine))
        costs = {name: await measure(port, name) for name in names}
    report("chat_cost", {name: cost._asdict() for name, cost in costs.items()}, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest configuration alone")
    interrupts.run(main(quick=parser.parse_args().quick))
