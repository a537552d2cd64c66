"""`/api/v1/nodes/NAME/proxy/metrics/cadvisor`: the metrics of the node agent, fetched from its port.

Other paths of a cluster's node proxy are not served. The agent is another process, which may not run.
"""

import asyncio
import urllib.error
import urllib.request

import orjson

from serving import errors
from serving.data_dir import DataDir
from serving.resources.formats import cadvisor

PATHS = ("metrics", cadvisor.PATH)
"""Paths of the kubelet; here both have all metrics."""
SECONDS = 10.0
"""Timeout of a request to the agent, which reads some files for each Pod."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NodeProxy:
    """Fetches metrics from the one node of this machine."""

    def __init__(self, data_dir: DataDir, name: str) -> None:
        self._port_file = data_dir.metrics("node")
        self._name = name

    async def text(self, node: str, path: str) -> bytes:
        """Return the body of a GET of this path of a node.

        Raises:
            errors.NotFound: the node or the path does not exist.
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
        except (OSError, KeyError, ValueError) as error:  # no port file yet, or nothing listens at the port
            reason = getattr(error, "reason", error)
            message = f"error trying to reach service: {reason}"
            raise errors.ApiError(503, "ServiceUnavailable", message) from error

    def _fetch(self) -> bytes:
        port = int(orjson.loads(self._port_file.read_bytes())["port"])
        with _DIRECT.open(f"http://127.0.0.1:{port}/{cadvisor.PATH}", timeout=SECONDS) as response:
            body: bytes = response.read()
            return body
