"""A proxy before an API server that refuses requests, answers late, or is away, as its test sets it.

async with FaultyApi(kubeconfig, ADDRESS) as api:
    api.write_kubeconfig(path, token_of(kubeconfig))     # for a component
    api.refused_share = 1 / 3
    api.delay_seconds = 3
    async with api.away(): ...
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import yaml
from aiohttp import web

from tests.rig.control_plane.api_proxy import ApiProxy


def token_of(kubeconfig: Path) -> str:
    """Return the token of the first user; an empty one if it has none."""
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    return str(user.get("token", ""))


class FaultyApi(ApiProxy):
    """Forwards each request until a fault is set."""

    def __init__(self, kubeconfig: Path, host: str) -> None:
        super().__init__(kubeconfig, host)
        self._random = random.Random(21)
        self.refused_share = 0.0
        """Of the requests, watches included, that get 409, 410, 429 or 500 by a seeded choice."""
        self.delay_seconds = 0.0
        """Before the answer to each request."""
        self.refused: Counter[int] = Counter()
        """Refusals by status."""

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Close all connections, and refuse new ones until the end of the block, as during a restart."""
        await self._site.stop()
        await asyncio.sleep(0)  # connections that are accepted already
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            connection.force_close()
        try:
            yield
        finally:
            await self._listen()

    def refusal(self, request: web.Request) -> web.Response | None:
        if self._random.random() >= self.refused_share:
            return None
        is_watch, is_write = "watch" in request.query, request.method != "GET"
        code, reason, headers = self._random.choice(
            [
                (410, "Expired", {}) if not is_write else (409, "Conflict", {}),
                (429, "TooManyRequests", {"Retry-After": "0"}),
                (500, "InternalError", {}),
            ]
        )
        self.refused[code] += 1
        status = {"kind": "Status", "code": code, "reason": reason, "message": "refused by the test"}
        if is_watch and code == 410:  # as an apiserver reports an expired watch, in its stream
            return web.Response(body=orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
        return web.json_response(status, status=code, headers=headers)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.delay_seconds)
        return await super()._serve(request)
