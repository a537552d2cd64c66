"""The versions that a cluster's API server and nodes report, and the nodes' extended resources. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeVersions:
    """The fields of a Node that decide how Pods get their models and their GPUs."""

    operating_system: str
    kubelet: str
    runtime: str
    """Name and version of the container runtime, such as `containerd://2.1.4`."""
    resources: frozenset[str] = frozenset()
    """Names of the extended resources that the node has, such as `nvidia.com/gpu`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only of a node with extended resources: the labels of all nodes are megabytes, and no choice needs
    them."""


@dataclass(frozen=True)
class ClusterVersions:
    """The versions of a cluster."""

    server: str = ""
    """`gitVersion` of the API server."""
    nodes: Mapping[str, NodeVersions] = field(default_factory=dict)
    """By node name."""
    problem: str = ""
    """Why the versions cannot be read; empty if they are known."""
