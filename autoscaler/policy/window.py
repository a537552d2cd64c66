"""The largest recent value, over windows of any length up to a maximum."""

from bisect import bisect_left
from collections import deque


class WindowMaximum:
    """Values with their times; values older than `longest` seconds are discarded."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._values: deque[tuple[float, int]] = deque()
        """Times in rising and values in falling order: a value removes the smaller values before it, which
        are the maximum of no later window."""

    def add(self, time: float, value: int) -> None:
        """Add a value; an earlier time than the last discards all values, because the clock was set back."""
        if self._values and time < self._values[-1][0]:
            self._values.clear()
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((time, value))
        while self._values[0][0] < time - self._longest:
            self._values.popleft()

    def is_empty(self, now: float) -> bool:
        """Return whether no value is known at `now`: none was added, or the clock was set back since."""
        return not self._values or now < self._values[-1][0]

    def maximum(self, now: float, seconds: float) -> int:
        """Return the largest value of the last `seconds`; 0 without one."""
        # The first entry within the window has the largest value.
        first = bisect_left(self._values, now - seconds, key=lambda entry: entry[0])
        return self._values[first][1] if first < len(self._values) else 0
