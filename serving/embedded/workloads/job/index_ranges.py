"""Sets of small numbers as short text, `0-3,5`: the format of a Job's `completedIndexes`."""

from collections.abc import Iterable

MOST = 1_000_000
"""The most numbers that `parse` accepts; it takes a fraction of a second for them."""


def parse(text: str) -> frozenset[int]:
    """Parse `0-3,5`; the empty text is the empty set.

    Raises:
        ValueError: not in this format, or more than `MOST` numbers.
    """
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        start, dash, end = part.partition("-")
        first, last = int(start), int(end if dash else start)
        if last - first >= MOST - len(numbers):
            raise ValueError(f"{part!r} has too many numbers: more than {MOST} in all")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def render(numbers: Iterable[int]) -> str:
    """Write the set, in order."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
