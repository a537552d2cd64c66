"""GPU limits of containers: the first GPU of the machine, shared by MPS. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from serving.errors import Cause
from serving.resources import names
from serving.resources.formats import quantity

_OTHERS = ("nvidia.com/", "aliyun.com/gpu")
"""Prefixes of the resources of device plugins that share GPUs in other ways."""
PIPES_ENV = "CUDA_MPS_PIPE_DIRECTORY"
PIPES = "/mnt/nvidia-mps"
"""Where a container that has its own mount namespace sees the directory of the MPS daemon's pipes."""


def refusals(path: str, container: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the container's unsupported GPU limits; `path` leads to `resources.limits` of the container."""
    for name, value in _limits(container).items():
        if name == names.GPU_RESOURCE:
            if quantity.parse(value) not in (0, 1):
                yield Cause(f"{path}[{name}]", "a container on one machine has one GPU, or a share of it")
        elif name.startswith(_OTHERS):
            yield Cause(f"{path}[{name}]", "GPUs of one machine are shared by mps alone")


def wants_gpu(container: Mapping[str, Any]) -> bool:
    """Whether the container requests the GPU."""
    return quantity.parse(_limits(container).get(names.GPU_RESOURCE, "0")) > 0


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    limits: Mapping[str, Any] = (container.get("resources") or {}).get("limits") or {}
    return limits
