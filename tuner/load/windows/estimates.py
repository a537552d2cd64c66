"""Estimates with 95 % intervals from correlated samples, such as the latencies of consecutive requests.

Percentiles: order statistics, which need no distribution (David and Nagaraja, Order Statistics, 2003,
section 7.1). Correlation: batch means of the indicator "is above the percentile" (Heidelberger and Lewis,
Quantile estimation in dependent sequences, Operations Research 32, 1984), with batches grown until they look
independent (Fishman, Grouping observations in digital simulation, Management Science 24, 1978). Shares:
Wilson's interval (JASA 22, 1927).
"""

import math

import numpy as np
from scipy import special

from serving.resources.tuning.trial import Estimate
from tuner.load.windows.samples import Floats

_TAIL_PROBABILITY = 0.025
"""Probability beyond each end of a 95 % interval."""
_Z = 1.959964
"""Quantile of the normal distribution at 97.5 %."""
_BATCHES = (64, 32, 16, 8)
"""Numbers of batches to try, in this order; with fewer than 8, an interval is mostly Student's t."""
_CORRELATION_PERCENT = 90.0
"""Percentile at which correlation is estimated as well: too few values lie above a higher one."""
_TAIL_PERCENT = 80.0
"""Percentile above which the tail is modelled."""
_AUTOCORRELATION_Z = 1.2816
"""Quantile at 90 %: a greater correlation between neighbouring batches makes the batches longer."""

_MAX_AUTOCORRELATION = 0.8
"""Greatest correlation between batches to correct for: a window with more is too short for any estimate."""


def mean(values: Floats) -> Estimate:
    """Estimate the mean of values of 0 or more: a time series, or one value for each request in order."""
    if len(values) < 2:
        only = float(values[0]) if len(values) else 0.0
        return Estimate(value=only, low=0.0, high=math.inf)
    batches = _independent(values)
    centre = float(values.mean())
    deviation = math.sqrt(float(batches.var(ddof=1)) * _autocorrelation_factor(batches) / len(batches))
    half = _student(len(batches)) * deviation
    return Estimate(value=centre, low=max(0.0, centre - half), high=centre + half)


def percentile(values: Floats, percent: float, *, censored: int = 0, longest: float) -> Estimate:
    """Estimate a percentile of values that are 0 or more.

    Args:
        values: in the order of time.
        percent: 0 to 100.
        censored: number of further values that are known only to be above all of `values`.
        longest: greatest possible value, in the unit of `values`; the end of an unbounded interval.
    """
    count = len(values) + censored
    if count == 0:
        return Estimate(value=longest, low=0.0, high=longest)
    ordered = np.sort(values)
    rank = math.ceil(count * percent / 100)
    value = _at(ordered, rank, longest)
    lower_value = _at(ordered, math.ceil(count * min(percent, _CORRELATION_PERCENT) / 100), longest)
    inflation = max(
        variance_inflation((values > threshold).astype(np.float64)) for threshold in {value, lower_value}
    )
    # The interval's ends as ranks of `effective` independent values, scaled to ranks of `count` values.
    effective = max(1, math.floor(count / inflation))
    low_rank = _binomial(_TAIL_PROBABILITY, effective, percent / 100)
    high_rank = _binomial(1 - _TAIL_PROBABILITY, effective, percent / 100) + 1
    is_bounded = high_rank <= effective
    return Estimate(
        value=value,
        low=_at(ordered, math.floor(low_rank * count / effective), longest),
        high=_at(ordered, math.ceil(high_rank * count / effective), longest) if is_bounded else longest,
    )


def tail_end(values: Floats, percent: float, *, longest: float) -> float:
    """Return the upper end of a percentile's interval with too few values above it for order statistics.

    The tail above the 80th percentile is modelled as exponential (Coles, An Introduction to Statistical
    Modeling of Extreme Values, 2001, chapter 4, with a shape of 0); a heavier tail extends further. The
    result is `longest` for a percentile below the tail, and if the tail has too few values.
    """
    threshold = percentile(values, _TAIL_PERCENT, longest=longest)
    exceeds = values > threshold.value
    if percent <= _TAIL_PERCENT or threshold.high >= longest or exceeds.sum() < 2:
        return longest
    mean_excess = float((values[exceeds] - threshold.value).mean())
    effective = max(1.0, float(exceeds.sum()) / variance_inflation(exceeds.astype(np.float64)))
    # The standard deviation of an exponential distribution equals its mean.
    highest_mean_excess = mean_excess * (1 + _Z / math.sqrt(effective))
    means_above_threshold = math.log((100 - _TAIL_PERCENT) / (100 - percent))
    return min(longest, threshold.high + highest_mean_excess * means_above_threshold)


def share(indicators: Floats, *, additional_ones: int = 0) -> Estimate:
    """Estimate the share of ones in a time series of zeros and ones that `additional_ones` ones follow."""
    count, ones = len(indicators) + additional_ones, float(indicators.sum()) + additional_ones
    if count == 0:
        return Estimate(value=0.0, low=0.0, high=1.0)
    value, effective = ones / count, count / variance_inflation(indicators)
    centre = (value + _Z**2 / (2 * effective)) / (1 + _Z**2 / effective)
    spread = math.sqrt(value * (1 - value) / effective + _Z**2 / (4 * effective**2))
    half = _Z * spread / (1 + _Z**2 / effective)
    # Exactly 0 and 1 by Wilson's formula, but not in floating point.
    low = 0.0 if ones == 0 else max(0.0, centre - half)
    return Estimate(value=value, low=low, high=1.0 if ones == count else min(1.0, centre + half))


def variance_inflation(values: Floats) -> float:
    """Return the ratio of the mean's variance to that of independent values; at least 1.

    It includes the factor of Student's t for few batches.
    """
    if len(values) < 2 * _BATCHES[-1] or values.min() == values.max():
        return 1.0
    batches = _independent(values)
    size = len(values) // len(batches)
    ratio = float(batches.var(ddof=1)) * _autocorrelation_factor(batches) * size / float(values.var())
    return max(1.0, ratio * (_student(len(batches)) / _Z) ** 2)


def _independent(values: Floats) -> Floats:
    """Return the means of as many batches as look independent; the values themselves if there are few.

    If no number of batches looks independent, these are the fewest batches.
    """
    batches = values
    for count in _BATCHES:
        if len(values) < 2 * count:
            continue
        size = len(values) // count
        batches = values[: size * count].reshape(count, size).mean(axis=1)
        if abs(_autocorrelation(batches)) <= _AUTOCORRELATION_Z / math.sqrt(count):
            break
    return batches


def _autocorrelation_factor(batches: Floats) -> float:
    """Return the factor of the mean's variance due to correlated batches, modelled as an AR(1) process.

    The estimate of the correlation is too low by about 1 / n (Kendall, Note on bias in the estimation of
    autocorrelation, Biometrika 41, 1954).
    """
    autocorrelation = min(_MAX_AUTOCORRELATION, max(0.0, _autocorrelation(batches) + 1 / len(batches)))
    return (1 + autocorrelation) / (1 - autocorrelation)


def _autocorrelation(values: Floats) -> float:
    """Return the correlation between neighbouring values."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / square if square > 0 else 0.0


def _student(batches: int) -> float:
    """Return the quantile of Student's t at 97.5 % for the mean of this number of batches."""
    return float(special.stdtrit(batches - 1, 1 - _TAIL_PROBABILITY))


def _binomial(probability: float, count: int, chance: float) -> int:
    """Return the least k with P(X <= k) >= `probability`, for X of `count` draws with this `chance`."""
    quantile = math.ceil(special.bdtrik(probability, count, chance))
    below = max(quantile - 1, 0)
    return int(below if special.bdtr(below, count, chance) >= probability else quantile)


def _at(ordered: Floats, rank: int, longest: float) -> float:
    """Return the value of a rank, counted from 1; 0 below rank 1, `longest` above the last rank."""
    if rank < 1:
        return 0.0
    return float(ordered[rank - 1]) if rank <= len(ordered) else longest
