"""Dynamic resource allocation: a claim on a GPU that its driver shares by MPS.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu (api/nvidia.com/resource/v1beta1), resource.k8s.io/v1
"""

from typing import Any

from serving.planning.gpu.share import MIB, GpuShare, RenderedShare, round_up

REQUEST = "gpu"
"""Name of the request within the claim."""
CLASS = "gpu.nvidia.com"
"""Name of the DeviceClass, and of its driver."""


def render(requested: GpuShare) -> RenderedShare:
    """Return the share as the spec of a ResourceClaimTemplate: percentages unchanged, memory in whole MiB."""
    memory = None if requested.memory is None else round_up(requested.memory, MIB)
    limits: dict[str, Any] = {}
    if requested.cores is not None:
        limits["defaultActiveThreadPercentage"] = requested.cores
    if memory is not None:
        limits["defaultPinnedDeviceMemoryLimit"] = f"{memory // MIB}Mi"
    # The keys are sorted: an API server compares the immutable parameters as text, and sorts them at a patch
    # of the metadata. With another order it refuses every such patch, that of the garbage collector too.
    config = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"mpsConfig": limits, "strategy": "MPS"},
    }
    devices = {
        "requests": [{"name": REQUEST, "exactly": {"deviceClassName": CLASS}}],
        "config": [{"requests": [REQUEST], "opaque": {"driver": CLASS, "parameters": config}}],
    }
    # A ResourceClaimTemplate's spec has the spec of its claims.
    return RenderedShare(
        GpuShare(memory, requested.cores),
        claim={"spec": {"devices": devices}},
        enforced_if=("the driver's feature gate MPSSupport is on, and its MPS control daemon is ready",),
    )
