"""HAMi: resources of its scheduler, enforced by a library inside the container.

https://github.com/Project-HAMi/HAMi/blob/master/docs/config.md
"""

from serving.planning.gpu.share import MIB, GpuShare, RenderedShare, round_up
from serving.resources import names

POLICY = "GPU_CORE_UTILIZATION_POLICY"
"""Environment variable of the container."""


def render(requested: GpuShare) -> RenderedShare:
    """Return the share for HAMi: memory in whole MiB, percentages unchanged.

    The policy `force` also limits a Pod that is alone on its GPU. With the default policy a trial on an idle
    GPU would measure a whole one.
    """
    memory = None if requested.memory is None else round_up(requested.memory, MIB)
    limits = {names.GPU_RESOURCE: "1"}
    if memory is not None:
        limits[names.HAMI_MEMORY] = str(memory // MIB)
    env = {}
    if requested.cores is not None:
        limits[names.HAMI_CORES] = str(requested.cores)
        env[POLICY] = "force"
    return RenderedShare(
        GpuShare(memory, requested.cores),
        limits,
        env,
        enforced_if=(
            "HAMi's library is loaded in the container and CUDA_DISABLE_CONTROL is not true",
            "kernels are short: a running kernel is not interrupted, so that cores are limited on average",
        ),
    )
