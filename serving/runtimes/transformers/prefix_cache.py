"""Which free rows of the cache hold tokens of ended sequences: of a prompt that begins with them, as a chat's
next turn does, only the rest has to be read. Pure: it has no keys and values.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


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

    def __init__(self, rows: int, least_tokens: int) -> None:
        """Begin without tokens.

        Args:
            rows: rows of the batch and free rows together; with 0, nothing is held.
            least_tokens: length of the shortest prefix that is used. A prompt with a prefix is read alone;
                others are read together.
        """
        self._rows, self._least_tokens = rows, least_tokens
        self._held: OrderedDict[int, Sequence[int]] = OrderedDict()

    def longest(self, prompt: Sequence[int]) -> CachedPrefix | None:
        """Return the longest prefix of a prompt that a row holds; None if no row holds `least_tokens` of it.

        It is never the whole prompt, as the last token has to be read for its logits.
        """
        if len(prompt) <= self._least_tokens:
            return None
        begin = prompt[: self._least_tokens]
        lengths = {
            row: min(_common(tokens, prompt), len(prompt) - 1)
            for row, tokens in self._held.items()
            if tokens[: self._least_tokens] == begin
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
        if len(tokens) < self._least_tokens:
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
