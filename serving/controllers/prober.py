"""Asks a revision, through the gateway's private listener, whether it serves. The way is the one traffic takes."""

from pathlib import Path

import httpx

from serving.planning.world import Probe


class Prober:
    """GETs over the gateway's Unix socket; every answer but 200 is a reason not to send traffic."""

    def __init__(self, socket: Path, timeout: float) -> None:
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)), base_url="http://probe", timeout=timeout
        )

    async def verdict(self, namespace: str, probe: Probe) -> str:
        """Return the empty string if every path answers 200, else what went wrong first."""
        for path in probe.paths:
            url = f"/{namespace}/{probe.backend}{path}"
            try:
                response = await self._client.get(url)
            except httpx.HTTPError as error:
                return f"GET {path}: {type(error).__name__} {error}".strip()
            if response.status_code != 200:
                detail = " ".join(response.text.split())[:200]
                return f"GET {path}: {response.status_code} {detail}".strip()
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
