"""The work of the last days by minute, for policies that use the season of a day."""

import math

from autoscaler.observation import Load
from autoscaler.simulate.policy_inputs import LoadHistory

MINUTE = 60.0
DAY_MINUTES = 1440
NO_MINUTE = -1
"""The open minute before the first reading."""


class Minutes:
    """Work per second of each minute of the last days; begins with the history. Minutes count from 1970."""

    def __init__(self, history: LoadHistory, days: int) -> None:
        self._rates = [0.0] * (days * DAY_MINUTES)
        """A ring buffer: the work per second of a minute is at the minute modulo the length."""
        self._first = self._open = NO_MINUTE
        self._work = 0.0
        """Work of the open minute so far."""
        start = history.start
        for position, work in enumerate(history.work.tolist()):
            self.add(start + position * history.step, start + (position + 1) * history.step, work)

    @property
    def open(self) -> int:
        """The minute that is not complete yet; -1 before the first reading."""
        return self._open

    @property
    def known(self) -> int:
        """The number of complete minutes in the buffer."""
        if self._open == NO_MINUTE:
            return 0
        return min(self._open - self._first, len(self._rates))

    def see(self, load: Load) -> int:
        """Add a reading; return how many minutes it completed."""
        return self.add(load.start, load.end, load.work)

    def add(self, start: float, end: float, work: float) -> int:
        """Spread work from `start` to `end` (Unix seconds) over its minutes; return how many it completed."""
        minute = int(start // MINUTE)
        if self._open == NO_MINUTE:
            self._first = self._open = minute
        if end <= (self._open + 1) * MINUTE:
            self._work += work
            return 0
        open_before = self._open
        span = end - start
        at = start
        while at < end:
            until = min((int(at // MINUTE) + 1) * MINUTE, end)
            self._advance(int(at // MINUTE))
            self._work += work * (until - at) / span
            at = until
        return self._open - open_before

    def of(self, minute: int) -> float | None:
        """Return the work per second of a minute; None: the minute is not in the buffer."""
        if not self._open - self.known <= minute < self._open:
            return None
        return self._rates[minute % len(self._rates)]

    def span(self, first: int, count: int) -> list[float]:
        """Return the work per second of each of `count` minutes from minute `first` on, all in the buffer."""
        start = first % len(self._rates)
        inside = self._rates[start : start + count]
        return inside if len(inside) == count else inside + self._rates[: count - len(inside)]

    def most(self, first: float, last: float) -> float | None:
        """Return the highest work per second of the complete minutes from `first` to `last`, in Unix seconds.

        None: none of these minutes is in the buffer.
        """
        start = max(int(first // MINUTE), self._open - self.known)
        end = min(math.ceil(last / MINUTE), self._open)
        return max(self.span(start, end - start)) if start < end else None

    def _advance(self, minute: int) -> None:
        """Complete the minutes before `minute`."""
        while self._open < minute:
            self._rates[self._open % len(self._rates)] = self._work / MINUTE
            self._work = 0.0
            self._open += 1
