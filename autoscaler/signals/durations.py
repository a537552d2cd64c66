"""Histograms of durations over the last minute, summed over gateways, and their percentiles. Pure.

The percentile is that of Prometheus's `histogram_quantile`: linear interpolation within the bucket that has it.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from autoscaler.observation import Percentile
from autoscaler.signals.exposition import Target

WINDOW_SECONDS = 60.0
"""Of the answers that a percentile is of: at twenty requests per second the 99th of a hundred stands on
twelve answers."""
LEAST_ANSWERS = 20.0
"""Below which there is no percentile: a single slow answer would be all of it."""

Buckets = Mapping[float, float]
"""Answers that took at most so many seconds, by that bound; infinity is the last one."""


def rise(before: Buckets | None, after: Buckets) -> dict[float, float] | None:
    """Return the answers between two readings of one gateway; None where the later ones are not more of the same.

    Args:
        before: None: everything in `after` was counted since.
        after: the later reading.
    """
    if not all(bound > 0 and 0 <= value < math.inf for bound, value in after.items()):
        return None
    if before is None:
        return dict(after)
    if before.keys() != after.keys():
        return None
    more = {bound: after[bound] - before[bound] for bound in after}
    return more if all(value >= 0 for value in more.values()) else None


def percentile(buckets: Buckets, percent: float) -> float | None:
    """Return the seconds within which `percent` of 100 answers came; None without an answer.

    Of answers beyond the last finite bound that bound is known, and no more.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    rank = buckets[bounds[-1]] * percent / 100
    low = below = 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > below:
            return low if bound == math.inf else low + (bound - low) * (rank - below) / (count - below)
        if bound < math.inf:
            low = bound
        below = max(below, count)
    return low


class DurationWindow:
    """The answers of the last minute, by target."""

    def __init__(self) -> None:
        self._rises: dict[Target, deque[tuple[float, Mapping[float, float]]]] = {}
        self._read: dict[Target, float] = {}
        """When a plausible histogram of a target was read last, though it had no answers."""

    def read(self, targets: Iterable[Target], now: float) -> None:
        """Note that the histograms of these targets were read."""
        for target in targets:
            self._read[target] = now

    def add(self, target: Target, answers: Buckets, now: float) -> None:
        """Take the answers since the reading before."""
        if any(answers.values()):
            self._rises.setdefault(target, deque()).append((now, dict(answers)))

    def of(self, target: Target, percent: float, now: float) -> Percentile | None:
        """Return a percentile over the window; None where nothing was read in it."""
        read = self._read.get(target)
        if read is None or not 0 <= now - read <= WINDOW_SECONDS:
            return None
        rises = self._rises.get(target)
        while rises and now - rises[0][0] > WINDOW_SECONDS:
            rises.popleft()
        total: dict[float, float] = {}
        for _, answers in rises or ():
            for bound, count in answers.items():
                total[bound] = total.get(bound, 0.0) + count
        answers_in_all = max(total.values(), default=0.0)
        if answers_in_all < LEAST_ANSWERS:
            return Percentile(None, answers_in_all)
        return Percentile(percentile(total, percent), answers_in_all)

    def forget(self, keep: AbstractSet[Target]) -> None:
        """Remember only these targets."""
        for known in (self._rises, self._read):
            for target in known.keys() - keep:
                del known[target]
