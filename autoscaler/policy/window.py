"""The largest recent value, in constant time per value."""

from collections import deque


class WindowMaximum:
    """Values with their times; what is older than the window is forgotten."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, int]] = deque()
        """Times and values, the values falling: a larger value outlives all smaller ones before it."""

    def add(self, time: float, value: int) -> None:
        """Take a value; times must not fall, and where they do, all is forgotten (the clock was set back)."""
        if self._values and time < self._values[-1][0]:
            self._values.clear()
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((time, value))

    def since(self, time: float) -> int:
        """Return the largest value that was taken at `time` or later; 0 without one."""
        while self._values and self._values[0][0] < time:
            self._values.popleft()
        return self._values[0][1] if self._values else 0
