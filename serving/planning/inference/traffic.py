"""Weights → the hash ring: who is served by which arm, and how few callers move when weights change.

The ring has 10,000 units; a caller's hash falls on one. Segments of the ring belong to owners (arms, or
backends). A change of weights hands over exactly as many units as some owner must lose: the share of callers
that moves is the total variation distance between the old and the new weights, the least that is possible,
and nobody leaves an arm whose weight grew. Borders are moved before segments are cut, so that going there
and back restores the ring in the common case and the number of segments stays small.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MAX_SEGMENTS = 512
"""Above it the ring is laid out anew, which moves more callers than needed; `Route.spec.segments` has this limit."""


class Segment(NamedTuple):
    """A run of `size` units of the ring."""

    owner: str
    size: int


def reassign(ring: Sequence[Segment], target: Mapping[str, int]) -> tuple[Segment, ...]:
    """Return the ring that gives each owner its `target` units and moves as few units as possible.

    Args:
        ring: the ring now, 10,000 units in all, or empty.
        target: units per owner, 10,000 in all, or empty (nobody is served).
    """
    wanted = {owner: size for owner, size in target.items() if size > 0}
    if not ring or not wanted:
        return tuple(Segment(owner, size) for owner, size in wanted.items())
    held: dict[str, int] = {}
    for segment in ring:
        held[segment.owner] = held.get(segment.owner, 0) + segment.size
    owners = [*wanted, *(owner for owner in held if owner not in wanted)]
    balance = {owner: held.get(owner, 0) - wanted.get(owner, 0) for owner in owners}
    now = merged(ring)
    while (shifted := _shift_borders(now, balance)) != now:
        now = shifted
    result = _cut(now, balance)
    if len(result) > MAX_SEGMENTS:
        return tuple(Segment(owner, size) for owner, size in wanted.items())
    return tuple(result)


def moved(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """Count the units that changed their owner."""
    old = [s.owner for s in before for _ in range(s.size)]
    new = [s.owner for s in after for _ in range(s.size)]
    return sum(a != b for a, b in zip(old, new, strict=True))


def merged(ring: Iterable[Segment]) -> list[Segment]:
    """Return the ring with neighbours of one owner joined and empty segments left out."""
    result: list[Segment] = []
    for segment in ring:
        if segment.size == 0:
            continue
        if result and result[-1].owner == segment.owner:
            result[-1] = Segment(segment.owner, result[-1].size + segment.size)
        else:
            result.append(segment)
    return result


def _shift_borders(ring: Sequence[Segment], balance: dict[str, int]) -> list[Segment]:
    """Move borders between an owner with too much (balance > 0) and a neighbour with too little, once each."""
    owners = [s.owner for s in ring]
    sizes = [s.size for s in ring]
    for left in range(len(ring) - 1):
        for giver, taker in ((left, left + 1), (left + 1, left)):
            count = min(balance[owners[giver]], -balance[owners[taker]], sizes[giver])
            if count > 0:
                sizes[giver] -= count
                sizes[taker] += count
                balance[owners[giver]] -= count
                balance[owners[taker]] += count
    return merged(map(Segment, owners, sizes))


def _cut(ring: Sequence[Segment], balance: dict[str, int]) -> list[Segment]:
    """Hand over what no border could: whole segments where they fit, else the end of one."""
    takers = [owner for owner, count in balance.items() if count < 0]
    result: list[Segment] = []
    for segment in ring:
        spare = min(max(balance[segment.owner], 0), segment.size)
        balance[segment.owner] -= spare
        result.append(Segment(segment.owner, segment.size - spare))
        while spare:
            count = min(spare, -balance[takers[0]])
            result.append(Segment(takers[0], count))
            balance[takers[0]] += count
            spare -= count
            if balance[takers[0]] == 0:
                takers.pop(0)
    return merged(result)
