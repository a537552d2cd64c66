"""Dynamic resource allocation: a claim of a GPU whose driver shares it by MPS.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu (api/nvidia.com/resource/v1beta1), resource.k8s.io/v1
"""

from typing import Any

from serving.planning.gpu.share import MIB, Rendered, Share, up

REQUEST = "gpu"
CLASS = "gpu.nvidia.com"


def render(asked: Share) -> Rendered:
    """Return the share by a claim: percents as they are, memory in whole MiB."""
    memory = None if asked.memory is None else up(asked.memory, MIB)
    limits: dict[str, Any] = {}
    if asked.cores is not None:
        limits["defaultActiveThreadPercentage"] = asked.cores
    if memory is not None:
        limits["defaultPinnedDeviceMemoryLimit"] = f"{memory // MIB}Mi"
    config = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": limits},
    }
    devices = {
        "requests": [{"name": REQUEST, "exactly": {"deviceClassName": CLASS}}],
        "config": [{"requests": [REQUEST], "opaque": {"driver": CLASS, "parameters": config}}],
    }
    return Rendered(
        Share(memory, asked.cores),
        claim={"spec": {"devices": devices}},
        enforced_if=("the driver's feature gate MPSSupport is on, and its MPS control daemon is ready",),
    )
