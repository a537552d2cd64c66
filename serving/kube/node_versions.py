"""Reads the versions of a cluster's API server and nodes.

It lists the Nodes now and then and does not watch them: kubelets report every few seconds, and versions
change with upgrades.
"""

import asyncio

import orjson

from serving import clock, errors
from serving.kube.connection.client import Kube
from serving.resources import kinds
from serving.resources.cluster_versions import ClusterVersions, NodeVersions

REFRESH_SECONDS = 300.0
"""Age at which the versions are read again: an upgrade of nodes takes longer, and a list of 1,000 nodes has
tens of megabytes.
"""


class VersionReader:
    """Keeps the versions that it has read last."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._read: ClusterVersions | None = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    async def read(self) -> ClusterVersions:
        """Return the versions of the last five minutes, or older ones if the latest attempt has failed.

        Raises:
            errors.ApiError, errors.Unavailable: none has been read yet.
        """
        async with self._lock:
            if self._read is None or clock.monotonic() - self._read_at >= REFRESH_SECONDS:
                self._read = await self._refreshed(self._read)
                self._read_at = clock.monotonic()
            return self._read

    async def _refreshed(self, before: ClusterVersions | None) -> ClusterVersions:
        try:
            nodes = await self._nodes()
            server = orjson.loads(await self._kube.raw("/version"))
        except errors.Forbidden as error:
            return ClusterVersions(problem=str(error))
        except (errors.ApiError, errors.Unavailable):
            if before is None:
                raise
            return before
        return ClusterVersions(str(server.get("gitVersion", "")), nodes)

    async def _nodes(self) -> dict[str, NodeVersions]:
        """Return the versions of each Node by its name."""
        nodes = (await self._kube.list(kinds.NODE)).items
        infos = {str(n["metadata"]["name"]): (n.get("status") or {}).get("nodeInfo") or {} for n in nodes}
        return {
            name: NodeVersions(
                operating_system=str(info.get("operatingSystem", "")),
                kubelet=str(info.get("kubeletVersion", "")),
                runtime=str(info.get("containerRuntimeVersion", "")),
            )
            for name, info in infos.items()
        }
