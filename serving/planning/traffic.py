"""Weights → the hash ring: who is served by which arm, and how few callers move when weights change.

The ring has 10,000 units; a caller's hash falls on one. Stretches of the ring belong to owners (arms, or
backends). A change of weights hands over exactly as many units as some owner must lose: the share of callers
that moves is the total variation distance between the old and the new weights, the least that is possible,
and nobody leaves an arm whose weight grew. Borders are moved before stretches are cut, so that going there
and back restores the ring in the common case and the number of stretches stays small.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

UNITS = 10_000
"""A ring's size: 0.01 % is the finest weight, as Envoy's weighted clusters have it in practice."""
MAX_STRETCHES = 512
"""Above it the ring is laid out anew, which moves more callers than needed; `Route.spec.segments` has this limit."""


class Stretch(NamedTuple):
    """A run of `size` units of the ring."""

    owner: str
    size: int


def units(weights: Mapping[str, int]) -> dict[str, int]:
    """Share 10,000 units out by the largest-remainder method (Hamilton); ties go to the earlier owner.

    An owner with a weight above 0 gets at least one unit, so that no weight is silently ignored.
    Empty where no weight is above 0.
    """
    total = sum(weights.values())
    if total <= 0:
        return {}
    shares = {owner: weight * UNITS // total for owner, weight in weights.items() if weight > 0}
    by_remainder = sorted(shares, key=lambda owner: -(weights[owner] * UNITS % total))
    for owner in by_remainder[: UNITS - sum(shares.values())]:
        shares[owner] += 1
    for owner in [owner for owner, size in shares.items() if size == 0]:
        shares[max(shares, key=lambda o: shares[o])] -= 1
        shares[owner] = 1
    return shares


def reassign(ring: Sequence[Stretch], target: Mapping[str, int]) -> tuple[Stretch, ...]:
    """Return the ring that gives each owner its `target` units and moves as few units as possible.

    Args:
        ring: the ring now, 10,000 units in all, or empty.
        target: units per owner, 10,000 in all, or empty (nobody is served).
    """
    wanted = {owner: size for owner, size in target.items() if size > 0}
    if not ring or not wanted:
        return tuple(Stretch(owner, size) for owner, size in wanted.items())
    held: dict[str, int] = {}
    for stretch in ring:
        held[stretch.owner] = held.get(stretch.owner, 0) + stretch.size
    owners = [*wanted, *(owner for owner in held if owner not in wanted)]
    balance = {owner: held.get(owner, 0) - wanted.get(owner, 0) for owner in owners}
    now = merged(ring)
    while (shifted := _shift_borders(now, balance)) != now:
        now = shifted
    result = _cut(now, balance)
    if len(result) > MAX_STRETCHES:
        return tuple(Stretch(owner, size) for owner, size in wanted.items())
    return tuple(result)


def moved(before: Sequence[Stretch], after: Sequence[Stretch]) -> int:
    """Count the units that changed their owner."""
    old = [s.owner for s in before for _ in range(s.size)]
    new = [s.owner for s in after for _ in range(s.size)]
    return sum(a != b for a, b in zip(old, new, strict=True))


def merged(ring: Iterable[Stretch]) -> list[Stretch]:
    """Return the ring with neighbours of one owner joined and empty stretches left out."""
    result: list[Stretch] = []
    for stretch in ring:
        if stretch.size == 0:
            continue
        if result and result[-1].owner == stretch.owner:
            result[-1] = Stretch(stretch.owner, result[-1].size + stretch.size)
        else:
            result.append(stretch)
    return result


def _shift_borders(ring: Sequence[Stretch], balance: dict[str, int]) -> list[Stretch]:
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
    return merged(map(Stretch, owners, sizes))


def _cut(ring: Sequence[Stretch], balance: dict[str, int]) -> list[Stretch]:
    """Hand over what no border could: whole stretches where they fit, else the end of one."""
    takers = [owner for owner, count in balance.items() if count < 0]
    result: list[Stretch] = []
    for stretch in ring:
        spare = min(max(balance[stretch.owner], 0), stretch.size)
        balance[stretch.owner] -= spare
        result.append(Stretch(stretch.owner, stretch.size - spare))
        while spare:
            count = min(spare, -balance[takers[0]])
            result.append(Stretch(takers[0], count))
            balance[takers[0]] += count
            spare -= count
            if balance[takers[0]] == 0:
                takers.pop(0)
    return merged(result)
