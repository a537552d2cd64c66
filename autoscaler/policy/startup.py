"""Learns the start-up time: a high quantile of the last starts, including failed attempts. Pure."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

KEPT = 64
"""Starts in memory: six of them are above the high quantile."""
QUANTILE = 0.9
MOST_UNKNOWN = 300.0
"""Most seconds that an unfinished start counts before the first finished start: a start that never ends is no
reason to be ready for more load. Four times the longest load of a base model in the GenTD26 trace (79 s)."""
MOST_LOST = 600.0
"""Most seconds of failed attempts that count for the next success: a crash loop of hours ends by a repair and
does not measure a start, and a horizon of hours would ask for the day's peak."""
STUCK_STARTS = 3.0
"""Start-up times after which a start counts as stuck: nine of ten starts took a third of that."""
UNKNOWN = 30.0
"""Assumed seconds of a start before the first start: a container that loads a model of some gigabytes."""


class StartupTimes:
    """The last start-up times of one target."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self._lost = 0.0
        """Seconds of failed attempts since the last success."""
        self._expected = UNKNOWN

    def learn(self, started: Iterable[float], failed: Iterable[float]) -> None:
        """Learn the seconds of successful and of failed starts; failed starts count for the next success."""
        before = self._lost, len(self._seconds)
        lost = self._lost + sum(seconds for seconds in failed if 0 < seconds < math.inf)
        self._lost = min(lost, MOST_LOST)
        changed = False
        for seconds in started:
            if 0 < seconds < math.inf:
                self._seconds.append(seconds + self._lost)
                self._lost, changed = 0.0, True
        if changed or self._lost != before[0]:
            ordered = sorted(self._seconds)
            self._expected = (
                ordered[min(int(QUANTILE * len(ordered)), len(ordered) - 1)] if ordered else UNKNOWN
            )

    def expected(self, starting: Iterable[float], now: float) -> float:
        """Return the seconds that a start takes at most in nine of ten cases.

        Args:
            starting: Unix seconds at which each replica that is not ready was created. Before the first
                finished start, the oldest of them bounds the start-up time from below.
            now: Unix seconds.
        """
        if self._seconds:
            return self._expected
        return min(max([UNKNOWN, *(now - created for created in starting)]), MOST_UNKNOWN)

    def are_stuck(self, starting: Sequence[float], now: float) -> bool:
        """Whether most pending starts have taken so long that additional starts would be stuck too.

        Args:
            starting: Unix seconds at which each pending replica was created, the oldest first.
            now: Unix seconds.
        """
        if not starting:
            return False
        usual = self._expected if self._seconds else MOST_UNKNOWN
        return now - starting[len(starting) // 2] > STUCK_STARTS * usual

    @property
    def known(self) -> float | None:
        """Return the seconds that a start takes at most in nine of ten cases; None before the first start."""
        return self._expected if self._seconds else None

    def state(self) -> list[float]:
        """Return the learned state for JSON."""
        return list(self._seconds)

    def restore(self, state: list[Any]) -> None:
        """Restore a result of `state`."""
        self._seconds.clear()
        self._lost = 0.0
        self.learn((float(seconds) for seconds in state), ())
