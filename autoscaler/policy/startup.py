"""Learns the start-up time: a high quantile of the last starts, including failed attempts. Pure."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

KEPT = 64
"""Starts in memory: six of them are above the high quantile."""
QUANTILE = 0.9
MOST_UNKNOWN = 300.0
"""Longest start-up time, in seconds, that unfinished starts suggest before the first finished start. The load
is forecast for the end of a start, and a start that never ends is no reason to forecast further. Four times
the longest load of a base model in the GenTD26 trace (79 s)."""
MOST_LOST = 600.0
"""Most seconds of failed attempts that count for the next success: a crash loop of hours ends by a repair and
does not measure a start, and a horizon of hours would ask for the day's peak."""
STUCK_STARTS = 3.0
"""Expected start-up times after which a start counts as stuck; nine of ten starts take at most one."""
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
        """Learn from starts that ended.

        Args:
            started: seconds of each successful start.
            failed: seconds of each failed start, which are added to the next successful one.
        """
        lost = self._lost + sum(seconds for seconds in failed if 0 < seconds < math.inf)
        self._lost = min(lost, MOST_LOST)
        is_changed = False
        for seconds in started:
            if 0 < seconds < math.inf:
                self._seconds.append(seconds + self._lost)
                self._lost, is_changed = 0.0, True
        if is_changed:
            self._expected = sorted(self._seconds)[int(QUANTILE * len(self._seconds))]

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
        expected = self._expected if self._seconds else MOST_UNKNOWN
        youngest_of_majority = starting[len(starting) // 2]
        return now - youngest_of_majority > STUCK_STARTS * expected

    @property
    def known(self) -> float | None:
        """Return the seconds that a start takes at most in nine of ten cases; None before any success."""
        return self._expected if self._seconds else None

    def state(self) -> list[float]:
        """Return the learned state for JSON."""
        return list(self._seconds)

    def restore(self, state: list[Any]) -> None:
        """Restore a result of `state`."""
        self._seconds.clear()
        self._lost = 0.0
        self.learn((float(seconds) for seconds in state), ())
