"""Asks a revision, through the gateway's private listener, whether it serves. The way is the one traffic takes."""

from pathlib import Path

import aiohttp

from serving.planning.inference.plan import BackendProbe


class Prober:
    """GETs over the gateway's Unix socket; every answer but 200 is a reason not to send traffic."""

    def __init__(self, socket: Path, timeout: float) -> None:
        """Must be called in a running event loop; `timeout` is of one GET, in seconds."""
        self._session = aiohttp.ClientSession(
            base_url="http://probe",
            connector=aiohttp.UnixConnector(path=str(socket)),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def verdict(self, namespace: str, probe: BackendProbe) -> str:
        """Return the empty string if every path answers 200, else what went wrong first."""
        for path in probe.paths:
            try:
                async with self._session.get(
                    f"/{namespace}/{probe.backend}{path}", allow_redirects=False
                ) as response:
                    text = await response.text(errors="replace")
            except (aiohttp.ClientError, TimeoutError) as error:
                return f"GET {path}: {type(error).__name__} {error}".strip()
            if response.status != 200:
                return f"GET {path}: {response.status} {' '.join(text.split())[:200]}".strip()
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
