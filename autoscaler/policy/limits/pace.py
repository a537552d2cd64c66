"""Limits how fast a count changes, by `behavior.scaleUp` and `behavior.scaleDown` of the spec. Pure."""

import math
from collections import deque

from autoscaler.policy.config import Pace

MINUTE = 60.0
"""Seconds over which a change is limited."""


class PaceLimit:
    """The counts of the last minute, and the limits that they set on the next count."""

    def __init__(self, up: Pace, down: Pace) -> None:
        self._up, self._down = up, down
        self._counts: deque[tuple[float, int]] = deque()
        """Unix seconds and `spec.replicas` at each decision of the last minute, the oldest first."""

    def limited(self, now: float, desired: int, count: int) -> int:
        """Return the count nearest to `count` that the limits allow; from zero, at least one replica.

        Args:
            now: Unix seconds.
            desired: current `spec.replicas`.
            count: decided replicas.
        """
        if self._counts and now < self._counts[-1][0]:
            self._counts.clear()  # the clock was set back
        self._counts.append((now, desired))
        while now - self._counts[0][0] > MINUTE:
            self._counts.popleft()
        if count > desired:
            lowest = min(earlier for _, earlier in self._counts)
            return min(count, max(_most(self._up, lowest), desired))
        if count < desired:
            highest = max(earlier for _, earlier in self._counts)
            return max(count, min(highest - _step(self._down, highest), desired))
        return count


def _most(pace: Pace, lowest: int) -> int:
    """Return the highest count within a minute of a count of `lowest`."""
    if pace.percent_per_minute is None or lowest > 0:
        return lowest + _step(pace, lowest)
    # A percentage of zero would hold a woken target at one replica.
    return max(pace.replicas_per_minute or 0, 1 + _percent(pace, 1))


def _step(pace: Pace, base: int) -> int:
    """Return the replicas by which a count may change within a minute; a million without a limit."""
    if pace.replicas_per_minute is None and pace.percent_per_minute is None:
        return 1_000_000
    return max(pace.replicas_per_minute or 0, _percent(pace, base))


def _percent(pace: Pace, base: int) -> int:
    """Return the percentage of `base` in replicas; 0 without a limit in percent."""
    return math.ceil(base * (pace.percent_per_minute or 0) / 100)
