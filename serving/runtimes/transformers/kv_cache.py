"""The keys and values of sequences that are generated together, in the form that Transformers' models use.

Each sequence has a row. The rows of a batch are contiguous, so that attention reads a view and copies
nothing.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class CacheSpan:
    """The rows and positions that the next call of the model writes."""

    first_row: int = 0
    rows: int = 0
    first_position: int = 0
    """First position, for rows with the same positions."""
    positions: torch.Tensor | None = None
    """The positions [rows, tokens] of rows that differ; None for rows from `first_position` on."""
    length: int = 0
    """Number of positions, from 0, that attention reads."""


class _Layer(CacheLayerMixin):  # type: ignore[misc] # Transformers has no types here
    """The keys and values of one layer: [row, head, position, channel]."""

    is_sliding = False

    def __init__(self, span: CacheSpan, rows: int, capacity: int) -> None:
        super().__init__()
        self._span, self._rows, self._capacity = span, rows, capacity

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the whole layer: at the first call of the model, which knows heads, widths and dtype."""
        heads = key_states.shape[1]
        positions = self._capacity + 1  # the last is for padding, and never read

        def zeros(like: torch.Tensor) -> torch.Tensor:
            # Not `torch.empty`: attention multiplies masked positions by zero, and NaN times zero is NaN.
            return torch.zeros(
                (self._rows, heads, positions, like.shape[3]), dtype=like.dtype, device=like.device
            )

        self.keys, self.values = zeros(key_states), zeros(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values of the new positions; return those that attention reads.

        Args:
            key_states: [rows of the span, head, new position, channel].
            value_states: as `key_states`.

        Returns:
            Keys and values [rows of the span, head, `CacheSpan.length`, channel].
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        span = self._span
        rows = slice(span.first_row, span.first_row + span.rows)
        if span.positions is None:
            written = slice(span.first_position, span.first_position + key_states.shape[2])
            self.keys[rows, :, written] = key_states
            self.values[rows, :, written] = value_states
        else:
            # Indexes [rows, 1] and [rows, tokens] with a slice between select [rows, tokens, head, channel].
            every_row = torch.arange(span.rows, device=key_states.device)[:, None]
            self.keys[rows][every_row, :, span.positions] = key_states.transpose(1, 2)
            self.values[rows][every_row, :, span.positions] = value_states.transpose(1, 2)
        return self.keys[rows, :, : span.length], self.values[rows, :, : span.length]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first positions of one row to another."""
        for whole in (self.keys, self.values):
            whole[target, :, :length] = whole[source, :, :length]

    def clear(self, row: int, length: int) -> None:
        """Set the first positions of a row to zero."""
        for whole in (self.keys, self.values):
            whole[row, :, :length] = 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 Transformers' interface
        """Return the number of positions that attention reads, and the first of them."""
        return self._span.length, 0

    def get_seq_length(self) -> int:
        """Return the number of positions before those of the next call.

        It is 0 for rows that differ: the decoder passes `position_ids`, so that models need not compute them.
        """
        return self._span.first_position

    def get_max_length(self) -> int:
        """Return the number of positions of a row."""
        return self._capacity


class KvCache(Cache):  # type: ignore[misc] # as above
    """The keys and values of all layers."""

    def __init__(self, layers: int, rows: int, capacity: int) -> None:
        """Args: capacity: positions of a row."""
        self.span = CacheSpan()
        super().__init__(layers=[_Layer(self.span, rows, capacity) for _ in range(layers)])

    @property
    def token_bytes(self) -> int:
        """The bytes of a token's keys and values in all layers; known once the model has been called."""
        return sum(whole[0, :, 0].nbytes for layer in self.layers for whole in (layer.keys, layer.values))

    def set_span(
        self,
        *,
        first_row: int,
        rows: int,
        length: int,
        first_position: int = 0,
        positions: torch.Tensor | None = None,
    ) -> None:
        """Set the fields of `CacheSpan` for the next call of the model."""
        span = self.span
        span.first_row, span.rows, span.length = first_row, rows, length
        span.first_position, span.positions = first_position, positions

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first positions of one row to another, in all layers."""
        for layer in self.layers:
            layer.copy(source, target, length)

    def clear(self, row: int, length: int) -> None:
        """Set the first positions of a row to zero, in all layers."""
        for layer in self.layers:
            layer.clear(row, length)
