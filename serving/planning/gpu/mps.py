"""NVIDIA's Multi-Process Service: environment of the client, on one machine and beside the device plugin.

https://docs.nvidia.com/deploy/mps/, https://github.com/NVIDIA/k8s-device-plugin (`sharing.mps`)
"""

from serving.planning.gpu.share import MIB, Rendered, Share, up

RESOURCE = "nvidia.com/gpu"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Percent; read when a CUDA context is made, and can only be less than the daemon's own."""
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""`DEVICE=AMOUNT`; the device is 0, as a client sees one."""


def render(asked: Share) -> Rendered:
    """Return the share by MPS: percents as they are, memory in whole MiB."""
    memory = None if asked.memory is None else up(asked.memory, MIB)
    env = {}
    if asked.cores is not None:
        env[THREADS] = str(asked.cores)
    if memory is not None:
        env[MEMORY] = f"0={memory // MIB}M"
    return Rendered(
        Share(memory, asked.cores), {RESOURCE: "1"}, env,
        enforced_if=(
            "the node's MPS control daemon runs: without it a process uses the whole GPU",
            "on a cluster the device plugin shares by MPS, and each of its replicas is at least this share",
        ),
    )  # fmt: skip
