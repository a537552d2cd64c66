"""Probes revisions through the gateway's private listener, on the path that traffic will take."""

from pathlib import Path

import aiohttp

from serving.planning.inference.plan import BackendProbe


class Prober:
    """Sends GET requests over the gateway's Unix socket; a revision is proven only by status 200."""

    def __init__(self, socket: Path, timeout: float) -> None:
        """Must be called in a running event loop; `timeout` limits one GET, in seconds."""
        self._session = aiohttp.ClientSession(
            base_url="http://probe",
            connector=aiohttp.UnixConnector(path=str(socket)),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def verdict(self, namespace: str, probe: BackendProbe) -> str:
        """Return an empty string if every path answers 200, else the first failure."""
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
