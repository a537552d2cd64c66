"""The size of the cache of keys and values that the free memory allows."""

from typing import NamedTuple

import torch

from serving.runtimes import cgroups, request_memory
from serving.system import procfs

SHARE = 0.5
"""The cache's share of the free memory; the rest is for the activations of prompts, and for other uses."""


class CacheShape(NamedTuple):
    """The size of a cache, without the row of the long prompt that is being read."""

    sequences: int
    """Sequences that are generated together: the rows of the batch."""
    context: int
    """Tokens of each row."""


def shape(sequences: int, context: int, tokens: int) -> CacheShape:
    """Return the wanted shape; without the memory for it, one of fewer sequences, or of one shorter sequence.

    Args:
        sequences: the wanted number of sequences.
        context: the wanted tokens of each sequence.
        tokens: tokens for whose keys and values there is memory (`cache_tokens`).
    """
    rows = tokens // context - 1  # one row is for the long prompt that is being read
    if rows >= 1:
        return CacheShape(min(sequences, rows), context)
    # Two rows of the wanted length are too large: one sequence and the prompt get half of the tokens each.
    return CacheShape(1, max(1, tokens // 2))


def cache_tokens(device: torch.device, token_bytes: int) -> int:
    """Return for how many tokens the cache's share of the free memory holds keys and values, at least 1.

    Args:
        device: the model's.
        token_bytes: bytes of a token's keys and values (`Decoder.token_bytes`).
    """
    return max(1, int(SHARE * _free_bytes(device) / token_bytes))


def main_memory(cache: CacheShape, device: torch.device, token_bytes: int) -> int:
    """Return the bytes of main memory that a cache takes once it is allocated: 0 where a GPU has it."""
    if device.type == "cuda":
        return 0
    positions = cache.context + 1  # one is for padding
    return (cache.sequences + 1) * positions * token_bytes


def _free_bytes(device: torch.device) -> int:
    """Return the free bytes of the GPU, or of main memory within the process's memory limit."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    free_bytes = [procfs.available_memory() or 0]
    limit = cgroups.memory_limit()
    if limit is not None:
        free_bytes.append(limit - request_memory.private_memory())
    return max(0, min(free_bytes))
