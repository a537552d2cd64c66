"""Chooses how Pods get the files of a model: from an image volume, or from a copy by an init container. Pure.

An image volume costs a node one download for all its Pods, and not every cluster has such volumes; a copy
works on every cluster.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions

VolumeSource = Literal["image", "copy"]
AUTO = "auto"
CHOICES = (AUTO, "image", "copy")
"""Values of the setting `models.volume`."""


class Version(NamedTuple):
    """The first two numbers of a version."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


_FIRST_KUBERNETES = Version(1, 35)
"""First version whose image volumes are on by default. In earlier versions a feature gate decides, which no
API shows (KEP-4639)."""
_FIRST_RUNTIMES: Mapping[str, Version] = {"containerd": Version(2, 1), "cri-o": Version(1, 31)}
"""First version of each container runtime that mounts images, by its name in `containerRuntimeVersion`."""
_OWN_RUNTIME = "slipway://"
"""Prefix of `containerRuntimeVersion` of Slipway's own node, the only node of one machine."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True)
class VolumeChoice:
    """How the Pods of new revisions get the files of a model, and why."""

    source: VolumeSource
    reason: str = ""
    is_set: bool = False
    """Whether `models.volume` sets the source. If it does, a revision that serves with the other source is
    replaced; with `auto` it keeps its own."""


IMAGE = VolumeChoice("image")
"""The choice on one machine."""


def choose(setting: str, versions: ClusterVersions | None) -> VolumeChoice:
    """Return how the Pods of new revisions get the files of a model.

    Args:
        setting: `models.volume`, one of `CHOICES`.
        versions: the versions of the cluster; None unless the setting is `auto`.
    """
    if setting == AUTO and versions is not None:
        return _of_cluster(versions)
    return VolumeChoice("copy" if setting == "copy" else "image", f"models.volume is {setting}", is_set=True)


def is_one_machine(versions: ClusterVersions) -> bool:
    """Whether every node is Slipway's own: one machine has one node, a cluster no such node."""
    nodes = versions.nodes.values()
    return bool(nodes) and all(node.runtime.startswith(_OWN_RUNTIME) for node in nodes)


def _of_cluster(versions: ClusterVersions) -> VolumeChoice:
    """Return image volumes only if every Linux node mounts images, as a Pod may run on any of them.

    A cordoned node counts too, as it may be uncordoned.
    """
    linux = {name: node for name, node in versions.nodes.items() if node.operating_system != "windows"}
    if versions.problem:
        return VolumeChoice("copy", f"the nodes are unknown: {versions.problem}")
    if not linux:
        return VolumeChoice("copy", "no node is listed")
    if is_one_machine(versions):
        return VolumeChoice("image", "the node mounts images")
    if _is_older(versions.server, _FIRST_KUBERNETES):
        message = f"API server {versions.server}: image volumes are on since {_FIRST_KUBERNETES}"
        return VolumeChoice("copy", message)
    for name, node in sorted(linux.items()):
        if obstacle := _obstacle(node):
            return VolumeChoice("copy", f"node {name}: {obstacle}")
    return VolumeChoice("image", "every node mounts images")


def _obstacle(node: NodeVersions) -> str:
    """Return why a node may not mount images, or an empty string if it mounts them."""
    if _is_older(node.kubelet, _FIRST_KUBERNETES):
        kubelet = node.kubelet or "of no known version"
        return f"kubelet {kubelet}: image volumes are on since {_FIRST_KUBERNETES}"
    name, _, version = node.runtime.partition("://")
    first = _FIRST_RUNTIMES.get(name)
    if first is None:
        return f"container runtime {name or 'of no known name'}: not known to mount images"
    return f"{name} {version}: mounts images since {first}" if _is_older(version, first) else ""


def _is_older(text: str, first: Version) -> bool:
    """Whether the version in `text`, such as `v1.35.2`, is older than `first`, or cannot be parsed."""
    match = _VERSION.match(text)
    return match is None or Version(int(match[1]), int(match[2])) < first
