"""Quantiles of samples. Pure."""

from collections.abc import Sequence

_PARTS = 1_000_000
"""A share is taken in whole millionths: the float 0.07 * 100 is above 7, and would be rounded up to 8."""


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-round(share * _PARTS) * len(ordered) // _PARTS)
    return ordered[max(rank, 1) - 1]
