"""95 % intervals of positive measurements, in logarithms: width, deviation, and pooled mean. Pure."""

import math
from collections.abc import Sequence

from serving.resources.tuning.trial import Estimate

Z95 = 1.96
"""Standard deviations to either end of a 95 % interval."""
WIDEST = math.log(20)
"""Largest half width of an interval, as a logarithm: beyond a factor of 20 the value counts as unknown."""


def log_deviation(estimate: Estimate) -> float:
    """Return the standard deviation of the logarithm, from the 95 % interval; 0 if there is no interval."""
    return half_width(estimate) / Z95


def half_width(estimate: Estimate) -> float:
    """Return half of the 95 % interval's width, as a logarithm: at most WIDEST, and 0 without an interval.

    There is no interval if the value is not positive, or not between two different ends. The upper end of a
    percentile of few requests may be far too high: the half width is at most twice the lower half. Without a
    positive lower end, as for the mean of few requests, the upper half counts, or WIDEST if that is 0.
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
        below = _half_width_of_mean(values, [e.value - e.low for e in estimates])
        above = _half_width_of_mean(values, [e.high - e.value for e in estimates])
        mean = sum(values) / len(values)
        return Estimate(value=mean, low=mean - below, high=mean + above)
    logs = [math.log(e.value) for e in estimates]
    own_halves = [half_width(e) for e in estimates]
    halves = [math.hypot(half, Z95 * repeatability) if half else 0.0 for half in own_halves]
    spread = _half_width_of_mean(logs, halves)
    mean = sum(logs) / len(logs)
    return Estimate(value=math.exp(mean), low=math.exp(mean - spread), high=math.exp(mean + spread))


def _half_width_of_mean(values: Sequence[float], halves: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of the mean.

    It is the larger of two: by the half widths of the values' own intervals, or by the values' differences.
    """
    count, mean = len(values), sum(values) / len(values)
    by_intervals = math.sqrt(sum(half**2 for half in halves)) / count
    variance = sum((value - mean) ** 2 for value in values) / max(count - 1, 1)
    return max(by_intervals, Z95 * math.sqrt(variance / count))
