"""A gateway with one language model, whose engine is a fake, and its client."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from serving import clock
from serving.router.envoy.counts.token_counts import PAIRS, TokenCounts
from tests.fakes.language_engine import LanguageEngine
from tests.rig.machine.addresses import own
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route


class ChatRig:
    """A gateway with one language model, and its client."""

    def __init__(self, rig: GatewayRig, engine: LanguageEngine, session: aiohttp.ClientSession) -> None:
        self.rig, self.engine, self._session = rig, engine, session

    async def serve(self, usage: str) -> None:
        chat = route("chat", [("a", 10_000)])
        chat["spec"]["tokenUsage"] = usage
        await self.rig.serve([chat], [endpoint_slice("chat-a", [engine_address()])])

    @contextlib.asynccontextmanager
    async def asked(
        self, path: str = "chat/completions", **fields: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        body = orjson.dumps(
            {"messages": [{"role": "user", "content": 'tell "me"'}], "model": "chat", **fields}
        )
        url = f"{self.rig.url}/default/chat/v1/{path}"
        async with self._session.post(url, data=io.BytesIO(body)) as response:
            yield response

    async def ask(self, path: str = "chat/completions", **fields: Any) -> bytes:
        async with self.asked(path, **fields) as response:
            assert response.status == 200
            return await response.read()

    def counts(self) -> TokenCounts:
        return self.rig.counts().tokens("default/chat-a/8080")

    async def until(self, holds: Callable[[TokenCounts], bool]) -> TokenCounts:
        deadline = clock.monotonic() + 5
        while not holds(counts := self.counts()):
            assert clock.monotonic() < deadline, counts
            await asyncio.sleep(0.02)
        return counts

    async def until_settled(self) -> TokenCounts:
        return await self.until(lambda counts: not any(counts.waiting(name) for name in PAIRS))


def engine_address() -> str:
    """Return the address of the engine of this worker's chats."""
    return own(67)


@contextlib.asynccontextmanager
async def chatting(root: Path, **gateway: Any) -> AsyncIterator[ChatRig]:
    """Args: gateway: settings that differ from the rig's."""
    engine = LanguageEngine()
    async with (
        engine.listening(engine_address(), 8080),
        gateway_rig(root, **gateway) as rig,
        aiohttp.ClientSession() as session,
    ):
        yield ChatRig(rig, engine, session)
