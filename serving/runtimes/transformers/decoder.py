"""Runs a causal language model for rows of a cache: prompts, a part of one, or each sequence's next token."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from serving.runtimes.transformers.kv_cache import KvCache

POSITIONS_MULTIPLE = 64
"""In a step attention reads a multiple of this number of positions, so that few shapes occur."""


class Decoder:
    """A model and the cache of `rows` sequences and of one long prompt.

    Sequences have the rows from 0; the long prompt, which is read in parts, has the row behind them until it
    is whole. Before each call of the model, `KvCache.set_span` sets the positions that the call writes, and
    how many positions, from 0, attention reads.
    """

    def __init__(self, model: Any, rows: int, capacity: int) -> None:
        """Args: capacity: tokens of a sequence, at most."""
        self._model = model
        self._capacity = capacity
        self._prompt_row = rows
        self._cache = KvCache(model.config.get_text_config().num_hidden_layers, rows + 1, capacity)
        self._device = model.device

    @property
    def token_bytes(self) -> int:
        """The bytes of a token in the cache; known once a prompt has been read."""
        return self._cache.token_bytes

    def prefill(self, prompts: Sequence[Sequence[int]], first_row: int) -> torch.Tensor:
        """Read whole prompts into the rows from `first_row` on; return the logits [prompts, vocabulary] after
        each.

        Shorter prompts are padded at their beginning, so that all end together.
        """
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        padded = [[*[0] * count, *prompt] for count, prompt in zip(padding, prompts, strict=True)]
        # [prompts, tokens]; negative for padding
        positions = (
            torch.arange(longest, device=self._device)[None, :]
            - torch.tensor(padding, device=self._device)[:, None]
        )
        self._cache.set_span(
            first_row=first_row,
            rows=len(prompts),
            length=longest,
            # The cache has a position behind the last one for padding, which attention never reads.
            positions=positions.where(positions >= 0, self._capacity),
        )
        # Attention reads the cache, where each prompt begins at position 0: only the tokens are padded.
        positions = positions.clamp(min=0)
        visible = torch.arange(longest, device=self._device)[None, None, :] <= positions[:, :, None]
        return self._logits(padded, positions, visible[:, None])

    def prefill_chunk(self, tokens: Sequence[int], first_position: int) -> torch.Tensor:
        """Read a chunk of a long prompt, from `first_position` on, into the prompt's own row; return the
        logits [vocabulary] after the chunk.
        """
        end = first_position + len(tokens)
        self._cache.set_span(first_row=self._prompt_row, rows=1, length=end, first_position=first_position)
        positions = torch.arange(first_position, end, device=self._device)
        visible = torch.arange(end, device=self._device)[None, :] <= positions[:, None]
        return self._logits([list(tokens)], positions[None], visible[None, None])[0]

    def begin_prefilled(self, row: int, length: int) -> None:
        """Copy the beginning of a row to the prompt's own row, which `prefill_chunk` continues."""
        with torch.inference_mode():
            self._cache.copy(row, self._prompt_row, length)

    def add_prefilled(self, row: int, length: int) -> None:
        """Copy the long prompt, once it has been read, to a sequence's row."""
        with torch.inference_mode():
            self._cache.copy(self._prompt_row, row, length)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a sequence to another row."""
        with torch.inference_mode():
            self._cache.copy(source, target, length)

    def clear(self, row: int, length: int) -> None:
        """Set a sequence's keys and values to zero.

        Attention of the row's next sequence also reads masked positions beyond its end, and NaN in a masked
        position would make the result NaN.
        """
        with torch.inference_mode():
            self._cache.clear(row, length)

    def step(self, tokens: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
        """Return the logits [rows, vocabulary] after each row's next token.

        Args:
            tokens: the next token of each row.
            lengths: the number of tokens of each row before its next token.
        """
        rounded = math.ceil((max(lengths) + 1) / POSITIONS_MULTIPLE) * POSITIONS_MULTIPLE
        length = min(self._capacity, rounded)
        positions = torch.tensor(lengths, device=self._device)[:, None]
        self._cache.set_span(
            first_row=0,
            rows=len(tokens),
            length=length,
            # One row needs no indexes, which cost time.
            first_position=lengths[0] if len(tokens) == 1 else 0,
            positions=positions if len(tokens) > 1 else None,
        )
        visible = torch.arange(length, device=self._device)[None, :] <= positions
        return self._logits([[token] for token in tokens], positions, visible[:, None, None])

    def _logits(
        self, tokens: list[list[int]], positions: torch.Tensor, visible: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits [rows, vocabulary] after the last token of each row.

        Args:
            tokens: [rows, tokens].
            positions: [rows, tokens]; 0 for padding.
            visible: [rows, 1, tokens, keys]; whether attention of a token uses the key at a position.
        """
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
