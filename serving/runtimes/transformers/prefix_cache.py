"""Which free rows of the cache hold tokens of ended sequences: of a prompt that begins with them, as a chat's
next turn does, only the rest has to be read. Pure: it has no keys and values.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LEAST_TOKENS = 64
"""Shortest prefix that is used. A prompt with a prefix is read alone, and not together with others, and the
two copies of the prefix's keys and values take the time of some tokens."""


class CachedPrefix(NamedTuple):
    """The beginning of a prompt that a row holds."""

    row: int
    length: int
    """Sequence[int]."""


class PrefixCache:
    """The tokens of each free row, the least recently used first.

    Free rows are those behind the batch. The batch takes them from its end on (`take`); ended sequences go to
    the last rows first. All tokens are in arrays of type `i`, whose slices compare fast.
    """

    def __init__(self, rows: int) -> None:
        """Args: rows: rows of the batch and free rows together; with 0, nothing is held."""
        self._rows = rows
        self._held: OrderedDict[int, Sequence[int]] = OrderedDict()

    def longest(self, prompt: Sequence[int]) -> CachedPrefix | None:
        """Return the longest prefix of a prompt that a row holds; None if no row holds `LEAST_TOKENS` of it.

        It is never the whole prompt, as the last token has to be read for its logits.
        """
        if len(prompt) <= LEAST_TOKENS:
            return None
        begin = prompt[:LEAST_TOKENS]
        lengths = {
            row: min(_common(tokens, prompt), len(prompt) - 1)
            for row, tokens in self._held.items()
            if tokens[:LEAST_TOKENS] == begin
        }
        if not lengths:
            return None
        row = max(lengths, key=lengths.__getitem__)
        self._held.move_to_end(row)
        return CachedPrefix(row, lengths[row])

    def add(self, tokens: Sequence[int], first_free: int) -> int | None:
        """Hold the tokens of an ended sequence, and return the row for its keys and values; None if there are
        too few tokens, or no row is free.

        Rows whose tokens are a prefix of these hold nothing more.

        Args:
            tokens: the tokens whose keys and values the sequence's row has.
            first_free: the first row behind the batch.
        """
        if len(tokens) < LEAST_TOKENS:
            return None
        self.take([row for row, held in self._held.items() if held == tokens[: len(held)]])
        row = self._free_row(first_free)
        if row is not None:
            self._held[row] = tokens
            self._held.move_to_end(row)
        return row

    def take(self, rows: Iterable[int]) -> None:
        """Discard the tokens of rows that the batch takes."""
        for row in rows:
            self._held.pop(row, None)

    def clear(self) -> None:
        """Discard the tokens of all rows."""
        self._held.clear()

    def _free_row(self, first_free: int) -> int | None:
        """Return the last free row without tokens, else the one whose tokens were used least recently."""
        for row in range(self._rows - 1, first_free - 1, -1):
            if row not in self._held:
                return row
        return next(iter(self._held), None)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix, by bisection, as comparisons of slices are fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
