"""`/api/v1/nodes/NAME/proxy/metrics/cadvisor`: what the node agent counts, fetched from its metrics port.

Of a cluster's node proxy it is these paths alone. The agent is another process, which may be away.
"""

import asyncio
import urllib.error
import urllib.request

import orjson

from serving import errors
from serving.data_dir import DataDir
from serving.resources import cadvisor

PATHS = ("metrics", cadvisor.PATH)
"""Of the kubelet's; both have everything here."""
SECONDS = 10.0
"""Longest wait for the agent: it reads some files for each Pod."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NodeProxy:
    """The one node of this machine."""

    def __init__(self, data_dir: DataDir, name: str) -> None:
        self._note = data_dir.metrics("node")
        self._name = name

    async def text(self, node: str, path: str) -> bytes:
        """Return what a GET of this path of a node answers.

        Raises:
            errors.NotFound: there is no such node, or it has no such path.
            errors.ApiError: 503, the node agent does not answer.
        """
        if node != self._name:
            details = {"name": node, "kind": "nodes"}
            raise errors.NotFound(404, "NotFound", f'nodes "{node}" not found', (), details)
        if path not in PATHS:
            raise errors.NotFound(404, "NotFound", "the server could not find the requested resource")
        return await self.metrics()

    async def metrics(self) -> bytes:
        """Return the node's metrics.

        Raises:
            errors.ApiError: 503, the node agent does not answer.
        """
        try:
            return await asyncio.to_thread(self._fetch)
        except (OSError, KeyError, ValueError) as error:  # no note yet, or nobody at its port
            reason = getattr(error, "reason", error)
            message = f"error trying to reach service: {reason}"
            raise errors.ApiError(503, "ServiceUnavailable", message) from error

    def _fetch(self) -> bytes:
        port = int(orjson.loads(self._note.read_bytes())["port"])
        with _DIRECT.open(f"http://127.0.0.1:{port}/{cadvisor.PATH}", timeout=SECONDS) as response:
            found: bytes = response.read()
            return found
