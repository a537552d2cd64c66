"""A client of Envoy's admin socket."""

from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import aiohttp
import orjson

from serving import errors
from serving.router.envoy.counts.statistics import FILTER

LIVE = "LIVE"
STARTING = ("PRE_INITIALIZING", "INITIALIZING")
"""States of an Envoy that does not have its first configuration yet."""
TIMEOUT_SECONDS = 5.0
"""For one response: Envoy's main thread also reads configuration, for at most 0.3 s at a time."""


class Admin:
    """A connection to one Envoy's admin socket.

    Every method but `close` raises `errors.Unavailable` if Envoy does not answer.
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
        """Return the values of Envoy's runtime by key."""
        runtime = orjson.loads(await self._request("GET", "/runtime"))
        return {key: round(float(entry["final_value"])) for key, entry in runtime["entries"].items()}

    async def counts(self) -> str:
        """Return the page of counts, for `statistics.parse`."""
        return await self._request("GET", f"/stats/prometheus?usedonly&filter={quote(FILTER)}")

    async def active(self) -> int:
        """Return the number of requests in flight on the public listener."""
        name = "http.public.downstream_rq_active"
        text = await self._request("GET", f"/stats?type=Gauges&filter=^{name}$")
        return int(text.partition(": ")[2] or 0)

    async def ready(self) -> bool:
        """Return whether Envoy has its first configuration and listens."""
        return await self.state() == LIVE

    async def state(self) -> str:
        """Return Envoy's state: a name of `envoy.admin.v3.ServerInfo.State`."""
        return (await self._request("GET", "/ready")).strip()

    async def drain(self) -> None:
        """Close each connection after its next answer; new ones are accepted and get one answer."""
        await self._request("POST", "/drain_listeners?graceful&skip_exit")

    async def close_listeners(self) -> None:
        """Accept no more connections, on any listener; those that are open go on."""
        await self._request("POST", "/drain_listeners")

    async def _request(self, method: str, path: str) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket, limit=4),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            )
        try:
            async with self._session.request(method, f"http://admin{path}") as response:
                return await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.Unavailable(f"Envoy's admin socket: {type(error).__name__}: {error}") from error
