"""NVIDIA's Multi-Process Service: the client's environment, on one machine and with the device plugin.

https://docs.nvidia.com/deploy/mps/, https://github.com/NVIDIA/k8s-device-plugin (`sharing.mps`)
"""

from serving.planning.gpu.share import MIB, GpuShare, RenderedShare, round_up
from serving.resources import names

THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Percent, read when a CUDA context is created; the daemon's own value is the upper limit."""
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""`DEVICE=AMOUNT`; a client sees one device, 0."""


def render(requested: GpuShare) -> RenderedShare:
    """Return the share for MPS: percentages unchanged, memory in whole MiB."""
    memory = None if requested.memory is None else round_up(requested.memory, MIB)
    env = {}
    if requested.cores is not None:
        env[THREADS] = str(requested.cores)
    if memory is not None:
        env[MEMORY] = f"0={memory // MIB}M"
    return RenderedShare(
        GpuShare(memory, requested.cores),
        {names.GPU_RESOURCE: "1"},
        env,
        enforced_if=(
            "the node's MPS control daemon runs: without it a process uses the whole GPU",
            "on a cluster the device plugin shares by MPS, and each of its replicas is at least this share",
        ),
    )
