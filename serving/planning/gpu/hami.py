"""HAMi: resources of its scheduler, kept to by a library inside of the container.

https://github.com/Project-HAMi/HAMi/blob/master/docs/config.md
"""

from serving.planning.gpu.share import MIB, Rendered, Share, up

POLICY = "GPU_CORE_UTILIZATION_POLICY"


def render(asked: Share) -> Rendered:
    """Return the share by HAMi: memory in whole MiB, percents as they are.

    The policy `force` limits a Pod that is alone on its GPU as well. By default it would not: a trial on an idle GPU would
    measure a whole one.
    """
    memory = None if asked.memory is None else up(asked.memory, MIB)
    limits = {"nvidia.com/gpu": "1"}
    if memory is not None:
        limits["nvidia.com/gpumem"] = str(memory // MIB)
    env = {}
    if asked.cores is not None:
        limits["nvidia.com/gpucores"] = str(asked.cores)
        env[POLICY] = "force"
    return Rendered(
        Share(memory, asked.cores), limits, env,
        enforced_if=(
            "HAMi's library is loaded in the container and CUDA_DISABLE_CONTROL is not true",
            "kernels are short: one that runs is not interrupted, so that cores are kept to on average",
        ),
    )  # fmt: skip
