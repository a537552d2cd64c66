"""Runs a causal language model for rows of a cache: a part of a prompt, or every sequence's next token."""

from collections.abc import Sequence
from typing import Any

import torch

from serving.runtimes.transformers.kv_cache import KvCache

MIN_KEYS = 64
"""Attention reads a multiple of this number of positions, so that few shapes occur."""


class Decoder:
    """A model and the cache of `rows` sequences and of one prompt that is being read.

    Sequences have the rows from 0; the prompt that is being read has a row of its own until it is whole.
    """

    def __init__(self, model: Any, rows: int, capacity: int) -> None:
        """Args: capacity: tokens of a sequence, at most."""
        self._model = model
        self._capacity = capacity
        self._prompt_row = rows
        self._cache = KvCache(model.config.num_hidden_layers, rows + 1, capacity)
        self._device = model.device

    def read_prompts(self, prompts: Sequence[Sequence[int]], first: int) -> torch.Tensor:
        """Read whole prompts into the rows from `first` on; return the logits [prompts, vocabulary] after
        each.

        Shorter prompts are padded at their beginning, so that all end together.
        """
        longest = max(map(len, prompts))
        padded = [[*[0] * (longest - len(prompt)), *prompt] for prompt in prompts]
        missing = torch.tensor([longest - len(prompt) for prompt in prompts], device=self._device)
        positions = torch.arange(longest, device=self._device)[None, :] - missing[:, None]
        span = self._cache.span
        span.first, span.rows, span.start, span.length = first, len(prompts), 0, longest
        span.positions = positions.where(positions >= 0, self._capacity)
        positions = positions.clamp(min=0)
        visible = torch.arange(longest, device=self._device)[None, None, :] <= positions[:, :, None]
        return self._logits(padded, positions, visible[:, None])

    def read_prompt(self, tokens: Sequence[int], start: int) -> torch.Tensor:
        """Read a part of a long prompt, from `start` on; return the logits [vocabulary] of its last token."""
        count = len(tokens)
        end = start + count
        span = self._cache.span
        span.first, span.rows, span.start, span.positions, span.length = self._prompt_row, 1, start, None, end
        positions = torch.arange(start, end, device=self._device)
        visible = torch.arange(end, device=self._device)[None, :] <= positions[:, None]
        return self._logits([list(tokens)], positions[None], visible[None, None])[0]

    def keep_prompt(self, row: int, length: int) -> None:
        """Move the prompt that has been read to a sequence's row."""
        with torch.inference_mode():
            self._cache.copy(self._prompt_row, row, length)

    def move(self, source: int, target: int, length: int) -> None:
        """Move a sequence to another row."""
        with torch.inference_mode():
            self._cache.copy(source, target, length)

    def clear(self, row: int, length: int) -> None:
        """Set a sequence's keys and values to zero: the row's next one reads positions beyond its end too,
        masked, and NaN there would make its own values NaN.
        """
        with torch.inference_mode():
            self._cache.clear(row, length)

    def step(self, tokens: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
        """Return the logits [rows, vocabulary] after each row's next token.

        Args:
            tokens: the token of each row.
            lengths: tokens of each row before it.
        """
        longest = min(self._capacity, -(-(max(lengths) + 1) // MIN_KEYS) * MIN_KEYS)
        positions = torch.tensor(lengths, device=self._device)[:, None]
        span = self._cache.span
        span.first, span.rows, span.start, span.positions, span.length = 0, len(tokens), 0, positions, longest
        visible = torch.arange(longest, device=self._device)[None, :] <= positions
        return self._logits([[token] for token in tokens], positions, visible[:, None, None])

    def _logits(
        self, tokens: list[list[int]], positions: torch.Tensor, visible: torch.Tensor
    ) -> torch.Tensor:
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor(tokens, device=self._device),
                position_ids=positions,
                attention_mask=visible,
                cache=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logits: torch.Tensor = output.logits[:, -1].float()
        return logits
