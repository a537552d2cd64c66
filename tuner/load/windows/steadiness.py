"""Detects the unsteady beginning of a window, and a trend after it.

Start: MSER-5, which drops the beginning so that the mean's standard error is least (White, An effective
truncation heuristic, Simulation 69, 1997; batches of five as in Franklin and White, Stationarity tests and
MSER-5, WSC 2008). Trend: the test of Mann and Kendall, which needs no distribution (Kendall, Rank Correlation
Methods, 1975), on few batches, as neighbours are correlated; and the slope of Theil and Sen, by which a trend
too small to matter is ignored.
"""

import math
from itertools import combinations

import numpy as np

from tuner.load.windows.samples import Floats, Samples

_BATCH = 5
"""Consecutive requests in one batch of MSER-5."""
_FEW = 50
"""Requests below which beginning and trend of a window are unknown."""
_PARTS = 10
"""Parts into which a window is split for the test for a trend."""
_SURE = 2.576
"""Two-sided 99 % quantile of the normal distribution, for each of the two tested series."""
_RELEVANT = 0.15
"""Change over the window, relative to the median, below which a trend is ignored."""


def beginning(samples: Samples) -> float:
    """Return the seconds to drop from the window's start; at most half of the window."""
    if len(samples.latency) < _FEW:
        return 0.0
    count = len(samples.latency) // _BATCH
    # Logarithms, as a few long latencies would dominate the variance.
    batches = np.log(np.maximum(samples.latency[: count * _BATCH], 1e-9)).reshape(count, _BATCH).mean(axis=1)
    dropped = _mser(batches)
    if dropped == 0:
        return 0.0
    return min(float(samples.done[dropped * _BATCH - 1]), samples.seconds / 2)


def _mser(batches: Floats) -> int:
    """Return the number of batches to drop from the start; at most half of them."""
    batches = batches - batches[0]  # a constant series becomes exactly 0: rounding drops none of it
    remaining = np.arange(len(batches), 0, -1)
    sums = np.cumsum(batches[::-1])[::-1]
    squares = np.cumsum(batches[::-1] ** 2)[::-1]
    error = (squares - sums**2 / remaining) / remaining.astype(np.float64) ** 2
    return int(np.argmin(error[: max(1, len(batches) // 2 + 1)]))


def steady(samples: Samples, start: float) -> bool:
    """Return whether neither the rate of answers nor their latency has a trend after `start` seconds.

    True if fewer than `_FEW` requests ended in that time.
    """
    done = samples.done
    kept = done >= start
    if int(kept.sum()) < _FEW:
        return True
    edges = np.linspace(start, samples.seconds, _PARTS + 1)
    counts = np.histogram(done[kept], edges)[0].astype(np.float64)
    latencies = np.array([float(np.median(part)) for part in np.array_split(samples.latency[kept], _PARTS)])
    return not (_trend(counts) or _trend(latencies))


def _trend(values: Floats) -> bool:
    """Return whether a series has a significant and relevant trend."""
    count = len(values)
    pairs = list(combinations(range(count), 2))
    signs = sum(math.copysign(1, values[b] - values[a]) for a, b in pairs if values[b] != values[a])
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    # 1 is the continuity correction of the test.
    if abs(signs) - 1 <= _SURE * deviation:
        return False
    slope = float(np.median([(values[b] - values[a]) / (b - a) for a, b in pairs]))
    return abs(slope) * (count - 1) > _RELEVANT * abs(float(np.median(values)))
