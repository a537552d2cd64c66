"""The hash ring from weights: which arm serves which callers, with few moves when weights change.

The hash of a caller falls on one of the ring's 10,000 units. A change of weights reassigns exactly as many
units as some arms must lose: the share of callers that moves is the total variation distance between the old
and the new weights, the minimum, and no caller leaves an arm whose weight grew. Borders
between segments are moved before segments are cut, so that a change and its reversal restore the ring in the
common case, and the number of segments stays small.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from serving.planning.apportionment import apportion_at_least_one

MAX_SEGMENTS = 512
"""Limit of `Route.spec.segments`. Above it the ring is rebuilt, which moves more callers than necessary."""


class ArmSegment(NamedTuple):
    """A run of `size` units of the ring."""

    owner: str
    size: int


def target_units(
    ring: Iterable[ArmSegment], weights: Mapping[str, int], proven: Collection[str]
) -> dict[str, int]:
    """Return the units of the ring that each arm should have.

    An arm that is not proven yet gets none. Its share goes to arms that have left the spec and still serve
    (so that no request fails when an arm is renamed), else to the proven arms in proportion.

    Args:
        ring: the current ring.
        weights: arm → weight, of the arms in the spec.
        proven: the arms of the spec that have a proven backend.
    """
    serving = {arm: weight for arm, weight in weights.items() if arm in proven}
    leaving: dict[str, int] = {}
    for segment in ring:
        if segment.owner not in weights:
            leaving[segment.owner] = leaving.get(segment.owner, 0) + segment.size
    pending = sum(weights.values()) - sum(serving.values())
    if not leaving or not pending:
        return apportion_at_least_one(serving)
    # In whole numbers: weights are multiplied by the units of the leaving arms, which share the pending
    # weight.
    scale = sum(leaving.values())
    scaled = {arm: weight * scale for arm, weight in serving.items()}
    return apportion_at_least_one(scaled | {arm: pending * size for arm, size in leaving.items()})


def reassign(ring: Sequence[ArmSegment], target: Mapping[str, int]) -> tuple[ArmSegment, ...]:
    """Return the ring that gives each owner its `target` units and reassigns as few units as possible.

    Args:
        ring: the current ring, 10,000 units in all, or empty.
        target: units per owner, 10,000 in all, or empty (nobody is served).
    """
    target_sizes = {owner: size for owner, size in target.items() if size > 0}
    if not ring or not target_sizes:
        return tuple(ArmSegment(owner, size) for owner, size in target_sizes.items())
    held: dict[str, int] = {}
    for segment in ring:
        held[segment.owner] = held.get(segment.owner, 0) + segment.size
    owners = [*target_sizes, *(owner for owner in held if owner not in target_sizes)]
    surplus = {owner: held.get(owner, 0) - target_sizes.get(owner, 0) for owner in owners}
    current = _merged(ring)
    while (shifted := _shift_borders(current, surplus)) != current:
        current = shifted
    result = _cut(current, surplus)
    if len(result) > MAX_SEGMENTS:
        return tuple(ArmSegment(owner, size) for owner, size in target_sizes.items())
    return tuple(result)


def _merged(ring: Iterable[ArmSegment]) -> list[ArmSegment]:
    """Return the ring with neighbours of one owner joined and empty segments left out."""
    result: list[ArmSegment] = []
    for segment in ring:
        if segment.size == 0:
            continue
        if result and result[-1].owner == segment.owner:
            result[-1] = ArmSegment(segment.owner, result[-1].size + segment.size)
        else:
            result.append(segment)
    return result


def _shift_borders(ring: Sequence[ArmSegment], surplus: dict[str, int]) -> list[ArmSegment]:
    """Move each border once, from an owner with a surplus to one with a deficit; updates `surplus`."""
    owners = [segment.owner for segment in ring]
    sizes = [segment.size for segment in ring]
    for index in range(len(ring) - 1):
        for giver, taker in ((index, index + 1), (index + 1, index)):
            count = min(surplus[owners[giver]], -surplus[owners[taker]], sizes[giver])
            if count > 0:
                sizes[giver] -= count
                sizes[taker] += count
                surplus[owners[giver]] -= count
                surplus[owners[taker]] += count
    return _merged(map(ArmSegment, owners, sizes))


def _cut(ring: Sequence[ArmSegment], surplus: dict[str, int]) -> list[ArmSegment]:
    """Reassign the units that no border could: whole segments if they fit, else the end of one."""
    takers = [owner for owner, count in surplus.items() if count < 0]
    result: list[ArmSegment] = []
    for segment in ring:
        spare = min(max(surplus[segment.owner], 0), segment.size)
        surplus[segment.owner] -= spare
        result.append(ArmSegment(segment.owner, segment.size - spare))
        while spare:
            count = min(spare, -surplus[takers[0]])
            result.append(ArmSegment(takers[0], count))
            surplus[takers[0]] += count
            spare -= count
            if surplus[takers[0]] == 0:
                takers.pop(0)
    return _merged(result)
