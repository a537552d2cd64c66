"""How long a start takes, as learned: a high quantile of the last ones, failed tries included. Pure."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

KEPT = 64
"""Starts that are remembered: the high quantile stands on six of them."""
QUANTILE = 0.9
MOST_UNKNOWN = 300.0
"""Seconds that an unfinished start counts as at most before any other was seen: one that never ends says
nothing of the load to be ready for. Four times the longest load of a base model in the GenTD26 trace (79
s)."""
MOST_LOST = 600.0
"""Seconds of failed tries that the next success counts with at most: a crash loop of hours ends when somebody
repairs it, and says nothing of how long a start takes; a horizon of hours would ask for the day's peak."""
STUCK_STARTS = 3.0
"""Start-up times after which a start is taken for one that never ends: nine of ten took a third of that."""
UNKNOWN = 30.0
"""Seconds before any start was seen: a container that loads a model of some gigabytes."""


class StartupTimes:
    """The last start-up times of one target."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self._lost = 0.0
        """Seconds that failed tries took since the last success."""
        self._expected = UNKNOWN

    def learn(self, started: Iterable[float], failed: Iterable[float]) -> None:
        """Take seconds of starts that succeeded, and of those that failed: the next success took those too."""
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
            starting: Unix seconds at which each replica that is not ready was created. Of one that takes longer than
                all before, this is what is known.
            now: Unix seconds.
        """
        if self._seconds:
            return self._expected
        return min(max([UNKNOWN, *(now - created for created in starting)]), MOST_UNKNOWN)

    def are_stuck(self, starting: Sequence[float], now: float) -> bool:
        """Whether most of the replicas that are not ready have taken so long that more of them would not come either.

        Args:
            starting: Unix seconds at which each was created, the oldest first.
            now: Unix seconds.
        """
        if not starting:
            return False
        usual = self._expected if self._seconds else MOST_UNKNOWN
        return now - starting[len(starting) // 2] > STUCK_STARTS * usual

    @property
    def known(self) -> float | None:
        """Return the seconds that a start takes at most in nine of ten cases; None before any was seen."""
        return self._expected if self._seconds else None

    def state(self) -> list[float]:
        """Return what was learned, for JSON."""
        return list(self._seconds)

    def restore(self, state: list[Any]) -> None:
        """Take what `state` returned."""
        self._seconds.clear()
        self._lost = 0.0
        self.learn((float(seconds) for seconds in state), ())
