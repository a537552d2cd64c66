"""GPU sharing of Alibaba Cloud ACK: memory in whole GiB, cores in steps of five percent.

Reference: "Use cGPU to allocate computing power" in the user guide of ACK, alibabacloud.com/help/en/ack.
"""

from serving import errors
from serving.planning.gpu.share import GIB, GpuShare, RenderedShare, round_up

MEMORY = "aliyun.com/gpu-mem"
CORES = "aliyun.com/gpu-core.percentage"
LABEL = "ack.node.gpu.schedule"
"""Label of a node that shares its GPUs. With `core_mem` the node enforces both limits, with `cgpu` that of
the memory, and with other values, such as `share`, none."""
STEP = 5
"""Smallest step of the cores, in percent."""


def render(requested: GpuShare) -> RenderedShare:
    """Return the share for ACK, on nodes that enforce it.

    Raises:
        errors.Permanent: `GpuShareInvalid`, the share has no memory: ACK shares cores with memory only.
    """
    if requested.memory is None:
        raise errors.Permanent("GpuShareInvalid", "resources.gpu.memory: ack shares cores with memory only")
    memory = round_up(requested.memory, GIB)
    cores = None if requested.cores is None else round_up(requested.cores, STEP)
    limits = {MEMORY: str(memory // GIB)}
    if cores is not None:
        limits[CORES] = str(cores)
    return RenderedShare(
        GpuShare(memory, cores),
        limits,
        node_selector={LABEL: "cgpu" if cores is None else "core_mem"},
        enforced_if=("cGPU is installed on the node: its label alone limits nothing",),
    )
