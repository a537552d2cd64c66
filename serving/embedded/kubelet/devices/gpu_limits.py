"""Which containers have a GPU here, and what no container can have: one machine gives its first GPU, shared by MPS."""

from collections.abc import Iterator, Mapping
from typing import Any

from serving.errors import Cause
from serving.resources import quantity

RESOURCE = "nvidia.com/gpu"
"""https://github.com/NVIDIA/k8s-device-plugin. With MPS it is a share: how large, the container's environment says."""
_OTHERS = ("nvidia.com/", "aliyun.com/gpu")
"""How resources of other ways to share a GPU begin."""
PIPES_ENV = "CUDA_MPS_PIPE_DIRECTORY"
PIPES = "/mnt/nvidia-mps"
"""Where a container in a private view finds the daemon's pipes."""


def refusals(path: str, container: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield why the container's limits of GPUs cannot be had; `path` is that of its limits."""
    for name, value in _limits(container).items():
        if name == RESOURCE:
            if quantity.parse(value) not in (0, 1):
                yield Cause(f"{path}[{name}]", "a container on one machine has one GPU, or a share of it")
        elif name.startswith(_OTHERS):
            yield Cause(f"{path}[{name}]", "GPUs of one machine are shared by mps alone")


def wanted(container: Mapping[str, Any]) -> bool:
    """Whether the container is to have the GPU."""
    return quantity.parse(_limits(container).get(RESOURCE, "0")) > 0


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (container.get("resources") or {}).get("limits") or {}
    return found
