"""Chooses how Pods get the files of a model: from an image volume, or from a copy by an init container. Pure.

An image volume costs a node one download for all its Pods, and not every cluster has such volumes; a copy
works on every cluster.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.resources.cluster_versions import ClusterVersions, NodeVersions

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


KUBERNETES = Version(1, 35)
"""Image volumes are on by default; before, a feature gate decides, which no API shows (KEP-4639)."""
_RUNTIMES: Mapping[str, Version] = {"containerd": Version(2, 1), "cri-o": Version(1, 31)}
"""First versions that mount images, by the name in `containerRuntimeVersion`."""
_OWN_RUNTIME = "slipway://"
"""Of the node of one machine."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True)
class VolumeChoice:
    """The source of the files of new revisions."""

    source: VolumeSource
    reason: str = ""
    is_set: bool = False
    """Whether the configuration sets it, for existing revisions too."""


IMAGE = VolumeChoice("image")
"""Image volumes, as on one machine."""


def choose(setting: str, versions: ClusterVersions | None) -> VolumeChoice:
    """Return the source of the files of new revisions.

    Args:
        setting: `models.volume`.
        versions: of the cluster; None where the setting alone decides.
    """
    if setting == AUTO and versions is not None:
        return _of_cluster(versions)
    return VolumeChoice("copy" if setting == "copy" else "image", f"models.volume is {setting}", is_set=True)


def is_one_machine(versions: ClusterVersions) -> bool:
    """Whether the only node is that of one machine."""
    nodes = versions.nodes.values()
    return bool(nodes) and all(node.runtime.startswith(_OWN_RUNTIME) for node in nodes)


def _of_cluster(versions: ClusterVersions) -> VolumeChoice:
    """Return image volumes only if each node has them, as a Pod may run on any, also on a cordoned one."""
    linux = {name: node for name, node in versions.nodes.items() if node.operating_system != "windows"}
    if versions.problem:
        return VolumeChoice("copy", f"the nodes are unknown: {versions.problem}")
    if not linux:
        return VolumeChoice("copy", "no node is listed")
    if is_one_machine(versions):
        return VolumeChoice("image", "the node mounts images")
    if _is_older(versions.server, KUBERNETES):
        message = f"API server {versions.server}: image volumes are on since {KUBERNETES}"
        return VolumeChoice("copy", message)
    for name, node in sorted(linux.items()):
        if obstacle := _obstacle(node):
            return VolumeChoice("copy", f"node {name}: {obstacle}")
    return VolumeChoice("image", "every node mounts images")


def _obstacle(node: NodeVersions) -> str:
    """Return why a node mounts no images, or an empty string."""
    if _is_older(node.kubelet, KUBERNETES):
        return f"kubelet {node.kubelet or 'of no known version'}: image volumes are on since {KUBERNETES}"
    name, _, version = node.runtime.partition("://")
    first = _RUNTIMES.get(name)
    if first is None:
        return f"container runtime {name or 'of no known name'}: not known to mount images"
    return f"{name} {version}: mounts images since {first}" if _is_older(version, first) else ""


def _is_older(text: str, first: Version) -> bool:
    """Whether a version is older than the first one, or cannot be read."""
    match = _VERSION.match(text)
    return match is None or Version(int(match[1]), int(match[2])) < first
