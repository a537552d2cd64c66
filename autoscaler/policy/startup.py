"""How long a start takes, as learned: a high quantile of the last ones, failed tries included. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import Any

KEPT = 64
"""Starts that are remembered: the high quantile stands on six of them."""
QUANTILE = 0.9
MOST_UNKNOWN = 600.0
"""Seconds that an unfinished start counts as at most before any other was seen: one that never ends says nothing of the load to
be ready for."""
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
        self._lost += sum(seconds for seconds in failed if seconds > 0)
        changed = False
        for seconds in started:
            if seconds > 0:
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

    def state(self) -> list[float]:
        """Return what was learned, for JSON."""
        return list(self._seconds)

    def restore(self, state: list[Any]) -> None:
        """Take what `state` returned."""
        self._seconds.clear()
        self._lost = 0.0
        self.learn((float(seconds) for seconds in state), ())
