"""Reads the versions of a cluster's API server and nodes, and the extended resources of the nodes.

It lists the Nodes now and then and does not watch them: kubelets report every few seconds, while versions
change with upgrades, and resources with device plugins.
"""

import asyncio

from serving import clock, errors
from serving.kube.connection import answers
from serving.kube.connection.client import Kube
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.formats import quantity
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions

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
        self._is_refused = False
        """Whether an attempt since the last success got 401 or 403."""
        self._lock = asyncio.Lock()

    async def read(self) -> ClusterVersions:
        """Return the versions of the last five minutes, or older ones if the latest attempt has failed.

        Only a second refusal means that the right is missing: an API server that restarts, or whose webhook
        for authorization is away, knows no rights for a moment.

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
            server = answers.json_object(await self._kube.raw("/version"), "/version")
        except errors.Forbidden as error:
            if before is not None and not self._is_refused:
                self._is_refused = True
                return before
            return ClusterVersions(problem=str(error))
        except (errors.ApiError, errors.Unavailable, KeyError, ValueError):
            if before is None:
                raise
            return before
        self._is_refused = False
        return ClusterVersions(str(server.get("gitVersion", "")), nodes)

    async def _nodes(self) -> dict[str, NodeVersions]:
        """Return the versions of each Node by its name."""
        nodes = (await self._kube.list(kinds.NODE)).items
        return {str(node["metadata"]["name"]): _versions(node) for node in nodes}


def _versions(node: Object) -> NodeVersions:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    resources = _resources(node)
    return NodeVersions(
        operating_system=str(info.get("operatingSystem", "")),
        kubelet=str(info.get("kubeletVersion", "")),
        runtime=str(info.get("containerRuntimeVersion", "")),
        resources=resources,
        labels=(node["metadata"].get("labels") or {}) if resources else {},
    )


def _resources(node: Object) -> frozenset[str]:
    """Return the names of the extended resources that a Node has now, with those of HAMi's annotation."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    extended = {name for name, amount in allocatable.items() if "/" in name and quantity.parse(amount) > 0}
    annotations = node["metadata"].get("annotations") or {}
    is_registered = bool(annotations.get(names.HAMI_ANNOTATION))
    is_gone = str(annotations.get(names.HAMI_HANDSHAKE, "")).startswith("Deleted")
    if names.GPU_RESOURCE in extended and is_registered and not is_gone:
        extended |= {names.HAMI_MEMORY, names.HAMI_CORES}
    return frozenset(extended)
