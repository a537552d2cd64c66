"""The versions that a cluster's API server and nodes report. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeVersions:
    """The fields of `status.nodeInfo` of a Node that decide the abilities of the node."""

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
    """By node name."""
    problem: str = ""
    """Why the versions cannot be read; empty if they are known."""
