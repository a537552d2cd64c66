"""The versions that a cluster's API server and nodes report. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeVersions:
    """Of `status.nodeInfo` of a Node."""

    operating_system: str
    kubelet: str
    runtime: str
    """Name and version of the container runtime, such as `containerd://2.1.4`."""


@dataclass(frozen=True)
class ClusterVersions:
    """The versions of a cluster."""

    server: str = ""
    """`gitVersion` of the API server."""
    nodes: Mapping[str, NodeVersions] = field(default_factory=dict)
    """By the name of the node."""
    problem: str = ""
    """Why they cannot be read; empty if they are known."""
