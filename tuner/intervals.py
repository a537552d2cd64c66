"""95 % intervals of positive measurements, in logarithms: width, deviation, and pooled mean. Pure."""

import math
from collections.abc import Sequence

from serving.resources.trial import Estimate

Z95 = 1.96
"""Standard deviations to either end of a 95 % interval."""
WIDEST = math.log(20)
"""Of an interval: what may be 20 times as much is not known at all, and how much more it may be says
nothing."""


def log_deviation(of: Estimate) -> float:
    """Return the standard deviation of the logarithm, from the 95 % interval; 0 where that cannot be told."""
    return half_width(of) / Z95


def half_width(of: Estimate) -> float:
    """Return half of the 95 % interval's width, as a logarithm, WIDEST at most.

    0 where it has no width that could be told. The upper end of a percentile of few requests is far away, as
    nothing bounds it; the lower one then says more. Where nothing bounds the lower one, as with the mean of
    few requests, the upper one does.
    """
    if of.value <= 0 or of.high < of.value or of.low > of.value or of.high <= of.low:
        return 0.0
    above = math.log(of.high / of.value)
    if of.low <= 0:
        return min(above, WIDEST) if above > 0 else WIDEST
    below = math.log(of.value / of.low)
    return min((above + below) / 2, 2 * below, WIDEST)


def pooled(estimates: Sequence[Estimate], repeatability: float = 0.0) -> Estimate:
    """Return the geometric mean of independent measurements with its interval.

    The arithmetic one where a value is not positive. The interval is that of the mean by the measurements'
    own ones, or by how far they are apart where that is more: two that exclude each other have seen less than
    their intervals say. Of equally sure measurements the ratio of the two is Birge's (The calculation of
    errors by the method of least squares, Physical Review 40, 1932), by which the Particle Data Group scales
    errors too. Student's t is left out: with two measurements it would say 6 times as much of any chance
    difference between them.

    Args:
        estimates: at least one.
        repeatability: standard deviation of the logarithm from one measurement to the next that their own
            intervals do not have, where it is known from others; what is exact stays so.
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
    """Return half the 95 % interval of the mean, by the values' own intervals or by their differences."""
    count, mean = len(values), sum(values) / len(values)
    within = math.sqrt(sum(half**2 for half in halves)) / count
    between = math.sqrt(sum((value - mean) ** 2 for value in values) / (count * max(count - 1, 1)))
    return max(within, Z95 * between)
