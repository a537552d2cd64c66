"""The HTTP client of the node agent: reads its metrics, and checks that it answers.

Of a cluster's node proxy (`/api/v1/nodes/NAME/proxy/...`) only the paths of metrics are served. The agent is
another process, which may not run; another program may then listen at its port.
"""

from http import HTTPStatus

from serving import errors, metrics
from serving.data_dir import DataDir
from serving.embedded.apiserver import status_errors
from serving.resources import kinds
from serving.resources.formats import cadvisor
from serving.system.network import http_reading

PATHS = ("metrics", cadvisor.PATH)
"""Paths of a kubelet's metrics. The node agent has one page for both, with all metrics."""
METRICS_SECONDS = 10.0
"""Longest request for the metrics: the agent reads some files for each Pod."""
ALIVE_SECONDS = 2.0
"""Longest check that the agent answers, for which it reads no file."""


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
            page = await self._fetch(metrics.PATH, METRICS_SECONDS)
        except errors.Unavailable as error:
            raise _unavailable(str(error)) from error
        if page.status != HTTPStatus.OK:
            raise _unavailable(f"it answered {page.status}")
        return page.body

    async def trouble(self) -> str:
        """Return why the agent does not answer; empty if it does."""
        try:
            await self._fetch("/", ALIVE_SECONDS)  # the answer is a 404: the agent has no page `/`
        except errors.Unavailable as error:
            return str(error)
        return ""

    async def _fetch(self, path: str, seconds: float) -> http_reading.Page:
        """Return a page of the node agent.

        Raises:
            errors.Unavailable: there is no port file yet, nothing listens at the port, or another program
                than the agent does.
        """
        try:
            page = metrics.recorded(self._note)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise errors.Unavailable(str(error)) from error
        async with http_reading.session() as session:
            url = f"http://{page.authority}{path}"
            return await http_reading.get(session, url, limit=metrics.MAX_BYTES, seconds=seconds)


def _unavailable(reason: str) -> errors.ApiError:
    return errors.ApiError(503, "ServiceUnavailable", f"error trying to reach service: {reason}")
