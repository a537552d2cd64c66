"""The HTTP client of the node agent: reads its metrics, and checks that it answers.

Of a cluster's node proxy (`/api/v1/nodes/NAME/proxy/...`) only the paths of metrics are served. The agent is
another process, which may not run.
"""

import asyncio
import http.client
import urllib.error
import urllib.request

from serving import errors, metrics
from serving.data_dir import DataDir
from serving.embedded.apiserver import status_errors
from serving.resources import kinds
from serving.resources.formats import cadvisor
from serving.system.network.redirects import NoRedirects

PATHS = ("metrics", cadvisor.PATH)
"""Paths of a kubelet's metrics. The node agent has one page for both, with all metrics."""
METRICS_SECONDS = 10.0
"""Timeout of a request for the metrics: the agent reads some files for each Pod."""
ALIVE_SECONDS = 2.0
"""Timeout of the check that the agent answers, for which it reads no file."""
PAGE_BYTES = 64 * 1024 * 1024
"""Longest answer that is read, enough for ten thousand containers. Another process may listen at the port of
an agent that has ended, and send more."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
_FAILURES = (OSError, KeyError, TypeError, ValueError, http.client.HTTPException)
"""There is no port file yet, or nothing listens at the port, or another program than the agent does."""


class NodeProxy:
    """Reaches the agent of the one node of this machine."""

    def __init__(self, data_dir: DataDir, name: str) -> None:
        self._note = data_dir.metrics("node")
        """The file in which the node agent records its port."""
        self.name = name
        """Of the one node."""

    async def text(self, node: str, path: str) -> bytes:
        """Return the body of a GET of a node proxy.

        Args:
            node: the node's name in the request.
            path: the path behind `/proxy/`, such as `metrics/cadvisor`.

        Raises:
            errors.NotFound: the node or the path does not exist.
            errors.ApiError: 503, the node agent does not answer.
        """
        if node != self.name:
            raise status_errors.not_found(kinds.NODE, node)
        if path not in PATHS:
            raise status_errors.no_resource(f"of a node only {' and '.join(PATHS)} are served")
        return await self.metrics()

    async def metrics(self) -> bytes:
        """Return the node's metrics.

        Raises:
            errors.ApiError: 503, the node agent does not answer.
        """
        try:
            return await asyncio.to_thread(self._fetch, metrics.PATH, METRICS_SECONDS)
        except _FAILURES as error:
            message = f"error trying to reach service: {_reason(error)}"
            raise errors.ApiError(503, "ServiceUnavailable", message) from error

    async def trouble(self) -> str:
        """Return why the agent does not answer; empty if it does."""
        try:
            await asyncio.to_thread(self._fetch, "/", ALIVE_SECONDS)
        except urllib.error.HTTPError:
            return ""  # the agent answers, with a 404: it has no page `/`
        except _FAILURES as error:
            return _reason(error)
        return ""

    def _fetch(self, path: str, seconds: float) -> bytes:
        """Return the body of a GET of the node agent; raises one of _FAILURES. Blocks."""
        page = metrics.recorded(self._note)
        try:
            with _DIRECT.open(f"http://{page.authority}{path}", timeout=seconds) as response:
                body: bytes = response.read(PAGE_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            raise
        if len(body) > PAGE_BYTES:
            raise ValueError(f"its answer is longer than {PAGE_BYTES} bytes")
        return body


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error))
