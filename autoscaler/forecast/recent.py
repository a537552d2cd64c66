"""The load of the last minutes: the rate to serve it at, its trend, and a rise that is steady over several
spans. Pure.

A span of n seconds is the last readings that together cover n seconds, to within `SLACK`.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

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
SLACK = 0.5
"""Seconds by which readings may be shorter than a span that they fill: readings are not exactly 5 s apart."""


class Trend(NamedTuple):
    """The current load, and its trend."""

    load: float
    """Load per second in the first span of `TRENDS`."""
    slope: float
    """Change of the logarithm of the load per second; 0 without a trend."""


class SteadyRise(NamedTuple):
    """A rise of the load by similar amounts over several spans; zeros without one."""

    rise: float
    """Load per second by which the load rises in a second."""
    limit: float
    """Largest extrapolation, of the logarithm of the load."""


_NO_RISE = SteadyRise(0.0, 0.0)


def sums(values: deque[float]) -> list[float]:
    """Return the totals of the newest 0, 1, 2, ... values; `values` has the oldest first."""
    return list(accumulate(reversed(values), initial=0.0))


def serving_rate(amounts: Sequence[float], seconds: Sequence[float], wait: float) -> float:
    """Return the rate that serves the work of the last readings within `wait` seconds.

    Args:
        amounts: the `sums` of the readings' amounts of load.
        seconds: the `sums` of the readings' seconds.
        wait: seconds that work may wait.
    """
    best = 0.0
    for span in SPANS:
        count = bisect_left(seconds, span - SLACK)
        if count == len(seconds):  # the readings do not fill the span
            return best if best > 0 else amounts[-1] / max(seconds[-1], 1.0)
        best = max(best, amounts[count] / (seconds[count] + wait))
    return best


def trend(amounts: Sequence[float], seconds: Sequence[float], floor: float) -> Trend:
    """Return the load of the first span of `TRENDS`, and the smaller of the two trends.

    Each span of `TRENDS` is compared with the equal span before it. There is no trend while the readings do
    not fill the longest pair of spans, or where the two trends have opposite signs.

    Args:
        amounts: the `sums` of the readings' amounts of load.
        seconds: the `sums` of the readings' seconds.
        floor: load per second that is added to each load before its logarithm is taken.
    """
    short, long = TRENDS
    ends = (short, 2 * short, long, 2 * long)
    # For each span, the number of readings in it, and in it and the span before it.
    short_half, short_whole, long_half, long_whole = (bisect_left(seconds, end - SLACK) for end in ends)
    if short_half == len(seconds):
        return Trend(amounts[-1] / max(seconds[-1], 1.0), 0.0)
    load = amounts[short_half] / seconds[short_half]
    if long_whole == len(seconds):
        return Trend(load, 0.0)
    slopes = []
    for half, whole in ((short_half, short_whole), (long_half, long_whole)):
        early = max(amounts[whole] - amounts[half], 0.0) / max(seconds[whole] - seconds[half], 1.0)
        late = amounts[half] / seconds[half]
        # The middles of the two spans are half of both spans apart.
        slopes.append((math.log(late + floor) - math.log(early + floor)) / (0.5 * seconds[whole]))
    if slopes[0] * slopes[1] <= 0:
        return Trend(load, 0.0)
    return Trend(load, min(slopes, key=abs))


def steady_rise(amounts: deque[float], lengths: deque[float]) -> SteadyRise:
    """Return the steady rise over the last `STEADY_SPANS` spans, or over one span less.

    Args:
        amounts: load of each reading, the oldest first.
        lengths: seconds of each reading.
    """
    rates: list[float] = []  # load per second of each span, the newest first
    amount = seconds = 0.0
    for part, length in zip(reversed(amounts), reversed(lengths), strict=True):
        amount += part
        seconds += length
        if seconds >= STEADY_SPAN - SLACK:
            rate = amount / seconds
            # The load need not have risen from the oldest span, as one span less is tried too.
            is_oldest = len(rates) == STEADY_SPANS - 1
            if rates and rate >= rates[-1] and not is_oldest:
                return _NO_RISE
            rates.append(rate)
            if len(rates) == STEADY_SPANS:
                break
            amount = seconds = 0.0
    changes = [late - early for late, early in pairwise(rates)]
    # A rise over all spans may be extrapolated further than a rise over one span less.
    for count, limit in ((STEADY_SPANS - 1, STEADY_LIMIT), (STEADY_SPANS - 2, TREND_LIMIT)):
        if len(changes) < count:
            continue
        least, most = min(changes[:count]), max(changes[:count])
        if least > STEADY_SHARE * most > 0 and rates[0] > (1 + STEADY_RISE) * rates[count]:
            return SteadyRise(least / STEADY_SPAN, limit)
    return _NO_RISE
