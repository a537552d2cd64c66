"""The size of the cache of keys and values that the free memory allows."""

from typing import Any

import torch

from serving.runtimes import cgroups, request_memory
from serving.system import procfs

SHARE = 0.5
"""Of the free memory; the rest is for the activations of prompts, and for others."""


def shape(sequences: int, context: int, tokens: int) -> tuple[int, int]:
    """Return how many sequences of how many tokens are generated together.

    One more sequence has memory: that of the prompt that is being read.

    Args:
        sequences: the wanted number.
        context: the wanted length.
        tokens: what the memory holds.
    """
    rows = tokens // context - 1
    return (min(sequences, rows), context) if rows >= 1 else (1, max(1, tokens // 2))


def cache_tokens(model: Any) -> int:
    """Return how many tokens the cache has room for, at least 1."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = 2 * config.num_hidden_layers * heads * width * model.dtype.itemsize
    return max(1, int(SHARE * _free(model.device) / size))


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    limits = [procfs.available_memory() or 0]
    own = cgroups.memory_limit()
    if own is not None:
        limits.append(own - request_memory.private_memory())
    return max(0, min(limits))
