"""Percentiles of request durations over the last minute, from histograms summed over gateways. Pure.

A percentile is computed as Prometheus's `histogram_quantile` does: by linear interpolation within its bucket.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from autoscaler.observation import Percentile
from autoscaler.signals.exposition import ScaleTargetName

WINDOW_SECONDS = 60.0
"""Window of a percentile: at 20 requests per second twelve answers are beyond the 99th percentile."""
LEAST_ANSWERS = 20.0
"""Fewest answers for a percentile: of 20 answers one is beyond the 95th percentile. A higher percentile of so
few answers depends on the slowest one alone."""

Buckets = Mapping[float, float]
"""Cumulative answers by the upper bound of their duration in seconds; the last bound is infinity."""


def increase(before: Buckets | None, after: Buckets) -> dict[float, float] | None:
    """Return the answers between two readings of one target at one gateway.

    None: a count fell, the bounds differ, or the later reading is implausible.

    Args:
        before: the earlier reading; None if it had no answers of the target, or Envoy started in between.
        after: the later reading.
    """
    if not all(bound > 0 and 0 <= value < math.inf for bound, value in after.items()):
        return None
    if before is None:
        return dict(after)
    if before.keys() != after.keys():
        return None
    answers = {bound: after[bound] - before[bound] for bound in after}
    return answers if all(count >= 0 for count in answers.values()) else None


def percentile(buckets: Buckets, percent: float) -> float | None:
    """Return a percentile (`percent` of 0 to 100) in seconds; None without answers.

    A percentile beyond the last finite bound is that bound.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    rank = buckets[bounds[-1]] * percent / 100
    lower_bound = lower_count = 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > lower_count:
            if bound == math.inf:
                return lower_bound
            return lower_bound + (bound - lower_bound) * (rank - lower_count) / (count - lower_count)
        if bound < math.inf:
            lower_bound = bound
        lower_count = max(lower_count, count)
    return lower_bound


class DurationWindow:
    """The answers of the last minute, by target. All times are monotonic seconds."""

    def __init__(self) -> None:
        self._increases: dict[ScaleTargetName, deque[tuple[float, Buckets]]] = {}
        """By target, the time and the new answers of each reading with answers in the window."""
        self._read_at: dict[ScaleTargetName, float] = {}
        """By target, the time of the last reading of its histogram, with or without answers."""

    def mark_read(self, targets: Iterable[ScaleTargetName], now: float) -> None:
        """Record that the histograms of these targets were read."""
        for target in targets:
            self._read_at[target] = now

    def add(self, target: ScaleTargetName, answers: Buckets, now: float) -> None:
        """Add the answers since the previous reading, and remove those before the window."""
        if any(answers.values()):
            self._increases.setdefault(target, deque()).append((now, dict(answers)))
        self._prune(target, now)

    def percentile(self, target: ScaleTargetName, percent: float, now: float) -> Percentile | None:
        """Return a percentile over the window; None: the histogram was not read in the window."""
        read_at = self._read_at.get(target)
        if read_at is None or not 0 <= now - read_at <= WINDOW_SECONDS:
            return None
        self._prune(target, now)
        total: dict[float, float] = {}
        for _, answers in self._increases.get(target, ()):
            for bound, count in answers.items():
                total[bound] = total.get(bound, 0.0) + count
        total_answers = max(total.values(), default=0.0)
        if total_answers < LEAST_ANSWERS:
            return Percentile(None, total_answers)
        return Percentile(percentile(total, percent), total_answers)

    def _prune(self, target: ScaleTargetName, now: float) -> None:
        increases = self._increases.get(target)
        while increases and now - increases[0][0] > WINDOW_SECONDS:
            increases.popleft()

    def retain(self, targets: AbstractSet[ScaleTargetName]) -> None:
        """Remove the state of all other targets."""
        for known in (self._increases, self._read_at):
            for target in known.keys() - targets:
                del known[target]
