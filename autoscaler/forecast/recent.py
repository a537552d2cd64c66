"""The load of the last minutes: the rate to serve it at, its trend, and a rise that is steady over several
spans. Pure.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise

SPANS = (5.0, 10.0, 20.0, 40.0, 120.0)
"""Seconds over which load is summed; the span with the highest rate counts."""
TRENDS = (30.0, 150.0)
"""Seconds of the two spans, each compared with the span before it. A ramp rises in both; a step soon rises
only in the longer span; noise rises in neither for long. The smaller trend counts."""
TREND_LIMIT = 0.3
"""Largest extrapolation of a trend, of the logarithm: a third of the load, because it was measured over
minutes."""
STEADY_SPAN = 40.0
"""Seconds of a span for recognising a load that rises steadily: by similar changes over three or more
spans."""
STEADY_SPANS = 4
STEADY_SHARE = 0.5
"""Least ratio of the smallest to the largest change in a steady rise; the changes of a step soon differ."""
STEADY_RISE = 0.1
"""Least share of the load by which it rises: by chance the loads of two spans differ by a few percent."""
STEADY_LIMIT = 1.0
"""Largest extrapolation of a steady rise, of the logarithm: 2.7 times the load."""
KEPT = 2 * TRENDS[-1]
"""Seconds of single readings in memory."""


def sums(values: deque[float]) -> list[float]:
    """Return the sums of no value, of the last one, of the last two and so on."""
    return list(accumulate(reversed(values), initial=0.0))


def serving_rate(amounts: Sequence[float], seconds: Sequence[float], wait: float) -> float:
    """Return the rate that serves the work of the last readings within `wait` seconds.

    Args:
        amounts: the `sums` of the readings' amounts.
        seconds: the `sums` of their seconds.
        wait: seconds.
    """
    best = 0.0
    for span in SPANS:
        count = bisect_left(seconds, span - 0.5)
        if count == len(seconds):
            return best if best > 0 else amounts[-1] / max(seconds[-1], 1.0)
        best = max(best, amounts[count] / (seconds[count] + wait))
    return best


def trend(amounts: Sequence[float], seconds: Sequence[float], floor: float) -> tuple[float, float]:
    """Return the load of the first span of `TRENDS`, and the smaller trend (change of the logarithm per
    second).

    Each span of `TRENDS` is compared with the equal span before it. `amounts` and `seconds` are `sums`.
    """
    short, long = TRENDS
    ends = (short, 2 * short, long, 2 * long)
    short_half, short_whole, long_half, long_whole = (bisect_left(seconds, end - 0.5) for end in ends)
    if short_half == len(seconds):
        return amounts[-1] / max(seconds[-1], 1.0), 0.0
    level = amounts[short_half] / seconds[short_half]
    if long_whole == len(seconds):
        return level, 0.0
    slopes = []
    for half, whole in ((short_half, short_whole), (long_half, long_whole)):
        early = max(amounts[whole] - amounts[half], 0.0) / max(seconds[whole] - seconds[half], 1.0)
        late = amounts[half] / seconds[half]
        slopes.append((math.log(late + floor) - math.log(early + floor)) / (0.5 * seconds[whole]))
    if slopes[0] * slopes[1] <= 0:
        return level, 0.0
    return level, min(slopes, key=abs)


def steady_rise(amounts: deque[float], lengths: deque[float]) -> tuple[float, float]:
    """Return the change of the load per second by its steady rise, and the limit of its extrapolation
    (logarithm); zeros without a steady rise.
    """
    rates: list[float] = []
    amount = seconds = 0.0
    for part, length in zip(reversed(amounts), reversed(lengths), strict=True):
        amount += part
        seconds += length
        if seconds >= STEADY_SPAN - 0.5:
            rate = amount / seconds
            if rates and rate >= rates[-1] and len(rates) < STEADY_SPANS - 1:
                return 0.0, 0.0  # it has not risen in each of the last spans
            rates.append(rate)
            if len(rates) == STEADY_SPANS:
                break
            amount = seconds = 0.0
    changes = [late - early for late, early in pairwise(rates)]
    for count, limit in ((STEADY_SPANS - 1, STEADY_LIMIT), (STEADY_SPANS - 2, TREND_LIMIT)):
        if len(changes) < count:
            continue
        least, most = min(changes[:count]), max(changes[:count])
        if least > STEADY_SHARE * most > 0 and rates[0] > (1 + STEADY_RISE) * rates[count]:
            return least / STEADY_SPAN, limit
    return 0.0, 0.0
