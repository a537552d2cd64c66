"""The hash ring from weights: which arm serves which callers, with few moves when weights change.

The hash of a caller falls on one of the ring's 10,000 units. A change of weights reassigns only the units
that arms must lose: the share of callers that moves is the total variation distance between the old and the
new weights, the minimum, and no caller leaves an arm whose weight grew. Borders between segments are moved
before segments are cut, so that a change and its reversal restore the ring in the common case, and the number
of segments stays small.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from serving.planning.apportionment import apportion_at_least_one
from serving.resources.traffic_split import RING_UNITS

MAX_SEGMENTS = 512
"""Limit of `Route.spec.segments`. Above it the ring is rebuilt, which moves more callers than necessary."""


class ArmSegment(NamedTuple):
    """A run of `size` units of the ring."""

    arm: str
    size: int


def target_units(
    ring: Iterable[ArmSegment], weights: Mapping[str, int], proven: Collection[str]
) -> dict[str, int]:
    """Return the units of the ring that each arm should have.

    An arm that is not proven yet gets none. Its share goes to arms that leave and still serve (so that no
    request fails when an arm is renamed, or hands its weight over to a new one), else to the proven arms in
    proportion. An arm leaves if it is no longer in the spec, or its weight is 0 now.

    Args:
        ring: the current ring, without arms that must not serve.
        weights: arm → weight, of the arms in the spec.
        proven: the arms of the spec that have a proven backend.
    """
    serving = {arm: weight for arm, weight in weights.items() if arm in proven}
    leaving: dict[str, int] = {}
    for segment in ring:
        if not weights.get(segment.arm):
            leaving[segment.arm] = leaving.get(segment.arm, 0) + segment.size
    pending = sum(weights.values()) - sum(serving.values())
    if not leaving or not pending:
        return apportion_at_least_one(serving)
    # The leaving arms share the pending weight in proportion to their units. All weights are multiplied by
    # the sum of these units, so that each share is a whole number.
    scale = sum(leaving.values())
    scaled = {arm: weight * scale for arm, weight in serving.items()}
    return apportion_at_least_one(scaled | {arm: pending * size for arm, size in leaving.items()})


def reassign(ring: Sequence[ArmSegment], target: Mapping[str, int]) -> tuple[ArmSegment, ...]:
    """Return the ring that gives each arm its `target` units and reassigns as few units as possible.

    Args:
        ring: the current ring. If it does not sum to 10,000 units, as after an edit by hand, it is rebuilt.
        target: units per arm, 10,000 in all, or empty (nobody is served).
    """
    target_sizes = {arm: size for arm, size in target.items() if size > 0}
    is_whole = sum(segment.size for segment in ring) == RING_UNITS
    if not is_whole or not target_sizes:
        return tuple(ArmSegment(arm, size) for arm, size in target_sizes.items())
    units_of: dict[str, int] = {}
    for segment in ring:
        units_of[segment.arm] = units_of.get(segment.arm, 0) + segment.size
    arms = [*target_sizes, *(arm for arm in units_of if arm not in target_sizes)]
    surplus = {arm: units_of.get(arm, 0) - target_sizes.get(arm, 0) for arm in arms}
    current = _merged(ring)
    while (shifted := _shift_borders(current, surplus)) != current:
        current = shifted
    result = _cut(current, surplus)
    if len(result) > MAX_SEGMENTS:
        return tuple(ArmSegment(arm, size) for arm, size in target_sizes.items())
    return tuple(result)


def _merged(ring: Iterable[ArmSegment]) -> list[ArmSegment]:
    """Return the ring with neighbours of one arm joined and empty segments left out."""
    result: list[ArmSegment] = []
    for segment in ring:
        if segment.size == 0:
            continue
        if result and result[-1].arm == segment.arm:
            result[-1] = ArmSegment(segment.arm, result[-1].size + segment.size)
        else:
            result.append(segment)
    return result


def _shift_borders(ring: Sequence[ArmSegment], surplus: dict[str, int]) -> list[ArmSegment]:
    """Move each border once: units go from an arm with a surplus to one with a deficit. Updates `surplus`."""
    arms = [segment.arm for segment in ring]
    sizes = [segment.size for segment in ring]
    for index in range(len(ring) - 1):
        for giver, taker in ((index, index + 1), (index + 1, index)):
            count = min(surplus[arms[giver]], -surplus[arms[taker]], sizes[giver])
            if count > 0:
                sizes[giver] -= count
                sizes[taker] += count
                surplus[arms[giver]] -= count
                surplus[arms[taker]] += count
    return _merged(map(ArmSegment, arms, sizes))


def _cut(ring: Sequence[ArmSegment], surplus: dict[str, int]) -> list[ArmSegment]:
    """Reassign the units that no border could: whole segments if they fit, else the end of one."""
    takers = [arm for arm, count in surplus.items() if count < 0]
    result: list[ArmSegment] = []
    for segment in ring:
        spare = min(max(surplus[segment.arm], 0), segment.size)
        surplus[segment.arm] -= spare
        result.append(ArmSegment(segment.arm, segment.size - spare))
        while spare:
            count = min(spare, -surplus[takers[0]])
            result.append(ArmSegment(takers[0], count))
            surplus[takers[0]] += count
            spare -= count
            if surplus[takers[0]] == 0:
                takers.pop(0)
    return _merged(result)
