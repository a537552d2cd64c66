"""A thousand concurrent event streams through the gateway: complete streams, and delays of events."""

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rig.data_plane.envoy_world import service, world
from rig.data_plane.proxies import free_port
from rig.harness import percentile, process_seconds, resident_mib
from serving.router.plan.service import Endpoint

EVERY_SECONDS = 0.5
GET = b"GET /default/chat/v1/x HTTP/1.1\r\nhost: a\r\n\r\n"
CHAT = (
    b"POST /default/chat/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 32\r\n\r\n"
    b'{"messages": [], "stream": true}'
)
EVENT = b'data: {"at":%.6f,"choices":[{"delta":{"content":" word"}}]}\n\n'
SENT = re.compile(rb'^data: {"at":([0-9.]+)')
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def streams(count: int, seconds: float, *, chats: bool = False) -> dict[str, float]:
    """Hold `count` streams open; half-way the endpoints change.

    Args:
        count: of streams.
        seconds: of each.
        chats: whether they are chats, whose tokens the gateway counts.
    """
    usage = "final" if chats else "none"

    port = free_port()
    server = await asyncio.start_server(_speaker(seconds), "127.0.0.1", port, backlog=count)
    lags: list[float] = []

    async with world() as (proxy, envoy):
        one = service("chat", [("only", 10_000, [Endpoint("127.0.0.1", port)])])
        await proxy.serve([replace(one, token_usage=usage)])
        before, cpu = resident_mib(envoy.pid), process_seconds(envoy.pid)
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(_listen(proxy.port, CHAT if chats else GET, lags)))
            if len(tasks) % 50 == 0:
                await asyncio.sleep(0.02)
        await asyncio.sleep(seconds / 2)
        more = [Endpoint("127.0.0.1", port), Endpoint("127.0.0.2", port)]
        await proxy.serve([replace(service("chat", [("only", 10_000, more)]), token_usage=usage)])
        held = resident_mib(envoy.pid)
        complete = sum([await task for task in tasks])
        cpu = process_seconds(envoy.pid) - cpu
    server.close()
    return {
        "streams": count,
        "complete": complete,
        "events": len(lags),
        "lagP50Ms": round(percentile(lags, 50), 2),
        "lagP99Ms": round(percentile(lags, 99), 2),
        "residentMiB": held,
        "residentMiBIdle": before,
        "envoyCpuSeconds": round(cpu, 2),
    }


def _speaker(seconds: float) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Return the server of one connection: events for `seconds`."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                writer.write(EVENT % time.monotonic())
                await writer.drain()
                await asyncio.sleep(EVERY_SECONDS)
            writer.write(b"data: end\n\n")
        writer.close()

    return speak


async def _listen(port: int, request: bytes, lags: list[float]) -> bool:
    """Read one stream, and add the delays of its events in milliseconds; return whether it was complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    ended = False
    async for line in reader:
        if line.startswith(b"data: end"):
            ended = True
            break
        if sent := SENT.match(line):
            lags.append(1000 * (time.monotonic() - float(sent[1])))
    writer.close()
    return ended
