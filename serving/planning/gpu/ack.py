"""Aliyun ACK's GPU sharing: memory in whole GiB, cores in steps of five percent.

https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/use-cgpu-to-allocate-computing-power
"""

from serving import errors
from serving.planning.gpu.share import GIB, Rendered, Share, up

MEMORY = "aliyun.com/gpu-mem"
CORES = "aliyun.com/gpu-core.percentage"
LABEL = "ack.node.gpu.schedule"
"""Of a node: `core_mem` keeps to both, `cgpu` to memory; others (`share`) only count."""
STEP = 5


def render(asked: Share) -> Rendered:
    """Return the share by ACK, on the nodes that keep to it.

    Raises:
        errors.Permanent: `GpuShareInvalid`, there is no memory in it: cores are shared with memory only.
    """
    if asked.memory is None:
        raise errors.Permanent("GpuShareInvalid", "resources.gpu.memory: ack shares cores with memory only")
    memory = up(asked.memory, GIB)
    cores = None if asked.cores is None else up(asked.cores, STEP)
    limits = {MEMORY: str(memory // GIB)}
    if cores is not None:
        limits[CORES] = str(cores)
    return Rendered(
        Share(memory, cores), limits,
        node_selector={LABEL: "cgpu" if cores is None else "core_mem"},
        enforced_if=("cGPU is installed on the node: its label alone limits nothing",),
    )  # fmt: skip
