"""Apportionment of whole units to weights, by the largest-remainder method (Hamilton).

Traffic is apportioned to the 10,000 units of a Route's hash ring.
"""

from collections.abc import Mapping

from serving.resources.traffic_split import RING_UNITS


def apportion(weights: Mapping[str, int], units: int = RING_UNITS) -> dict[str, int]:
    """Return the units of each owner with a positive weight, in proportion; ties go to the earlier owner.

    Empty if no weight is positive.
    """
    total = sum(weights.values())
    if total <= 0:
        return {}
    shares = {owner: weight * units // total for owner, weight in weights.items() if weight > 0}
    by_remainder = sorted(shares, key=lambda owner: -(weights[owner] * units % total))
    for owner in by_remainder[: units - sum(shares.values())]:
        shares[owner] += 1
    return shares


def apportion_at_least_one(weights: Mapping[str, int], units: int = RING_UNITS) -> dict[str, int]:
    """Apportion so that every positive weight has at least one unit, taken from the largest share."""
    shares = apportion(weights, units)
    for owner in [owner for owner, share in shares.items() if share == 0]:
        shares[max(shares, key=shares.__getitem__)] -= 1
        shares[owner] = 1
    return shares
