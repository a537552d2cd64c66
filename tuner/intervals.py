"""95 % intervals of positive measurements, in logarithms: width, deviation, and pooled mean. Pure."""

import math
from collections.abc import Sequence

from serving.resources.tuning.trial import Estimate

Z95 = 1.96
"""Standard deviations to either end of a 95 % interval."""
WIDEST = math.log(20)
"""Largest half width of an interval: a value that may be 20 times as much is unknown."""


def log_deviation(estimate: Estimate) -> float:
    """Return the standard deviation of the logarithm, from the 95 % interval; 0 if unknown."""
    return half_width(estimate) / Z95


def half_width(estimate: Estimate) -> float:
    """Return half of the 95 % interval's width, as a logarithm: at most WIDEST, and 0 if it is unknown.

    The upper end of a percentile of few requests is unbounded and far away: then twice the lower half counts.
    Without a lower end, as for the mean of few requests, the upper half counts.
    """
    if (
        estimate.value <= 0
        or estimate.high < estimate.value
        or estimate.low > estimate.value
        or estimate.high <= estimate.low
    ):
        return 0.0
    above = math.log(estimate.high / estimate.value)
    if estimate.low <= 0:
        return min(above, WIDEST) if above > 0 else WIDEST
    below = math.log(estimate.value / estimate.low)
    return min((above + below) / 2, 2 * below, WIDEST)


def pooled(estimates: Sequence[Estimate], repeatability: float = 0.0) -> Estimate:
    """Return the geometric mean of independent measurements with its interval.

    If a value is not positive, return the arithmetic mean. The interval of the mean follows from those of the
    measurements, or from their differences if these are larger: measurements with disjoint intervals are less
    precise than their intervals claim. For equally precise measurements the ratio of the two is
    Birge's (The calculation of errors by the method of least squares, Physical Review 40, 1932), with which
    the Particle Data Group scales errors. Student's t is not used: with two measurements it would widen the
    interval of any chance difference 6 times.

    Args:
        estimates: at least one.
        repeatability: standard deviation of the logarithm between measurements, beyond their own intervals;
            exact measurements stay exact.
    """
    if len(estimates) == 1 and not repeatability:
        return estimates[0]
    if any(e.value <= 0 for e in estimates):
        values = [e.value for e in estimates]
        below = _spread(values, [e.value - e.low for e in estimates])
        above = _spread(values, [e.high - e.value for e in estimates])
        mean = sum(values) / len(values)
        return Estimate(value=mean, low=mean - below, high=mean + above)
    logs = [math.log(e.value) for e in estimates]
    halves = [math.hypot(half, Z95 * repeatability) if (half := half_width(e)) else 0.0 for e in estimates]
    spread = _spread(logs, halves)
    mean = sum(logs) / len(logs)
    return Estimate(value=math.exp(mean), low=math.exp(mean - spread), high=math.exp(mean + spread))


def _spread(values: Sequence[float], halves: Sequence[float]) -> float:
    """Return half the 95 % interval of the mean, from the values' intervals or from their differences."""
    count, mean = len(values), sum(values) / len(values)
    within = math.sqrt(sum(half**2 for half in halves)) / count
    between = math.sqrt(sum((value - mean) ** 2 for value in values) / (count * max(count - 1, 1)))
    return max(within, Z95 * between)
