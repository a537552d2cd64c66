"""Asks Envoy what it is doing, over its admin socket. Decides nothing."""

from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import aiohttp
import orjson

from serving import errors
from serving.router.envoy.statistics import FILTER, FILTER_COUNTS

SECONDS = 5.0
"""Longest wait for one answer; the admin thread is the one that reads configuration, at most 0.3 s at a time."""


class Admin:
    """A connection to one Envoy's admin socket.

    Every method raises `errors.Unavailable` where there is no answer.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def runtime(self) -> dict[str, int]:
        """Return the entries of the runtime."""
        found = orjson.loads(await self._ask("GET", "/runtime"))
        return {key: round(float(entry["final_value"])) for key, entry in found["entries"].items()}

    async def statistics(self, *, durations: bool = True) -> str:
        """Return the page that `envoy.statistics` reads, with or without durations."""
        wanted = quote(FILTER if durations else FILTER_COUNTS)
        return await self._ask("GET", f"/stats/prometheus?usedonly&filter={wanted}")

    async def active(self) -> int:
        """Return the requests in flight on the public listener."""
        name = "http.public.downstream_rq_active"
        text = await self._ask("GET", f"/stats?type=Gauges&filter=^{name}$")
        return int(text.partition(": ")[2] or 0)

    async def ready(self) -> bool:
        """Say whether Envoy has its first configuration and listens."""
        return (await self._ask("GET", "/ready")).startswith("LIVE")

    async def drain(self) -> None:
        """Stop accepting connections; requests in flight go on, and connections close after them."""
        await self._ask("POST", "/drain_listeners?graceful&skip_exit")

    async def _ask(self, method: str, path: str) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket, limit=4),
                timeout=aiohttp.ClientTimeout(total=SECONDS),
            )
        try:
            async with self._session.request(method, f"http://admin{path}") as response:
                return await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.Unavailable(f"Envoy's admin socket: {type(error).__name__}: {error}") from error
