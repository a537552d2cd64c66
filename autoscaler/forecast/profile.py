"""The usual load at each time of a day or a week, robust against a single unusual day."""

import math
from array import array
from collections.abc import Callable, Sequence

BIN = 300.0
"""Seconds of a bin: 288 bins a day. At this resolution the daily shapes of the measured traces, of one day to
three months, are smooth."""
DAY = 86_400.0
WEEK = 7 * DAY
GAIN = 0.35
"""Weight of the newest cycle after several cycles: more than half of the weight is on the last two cycles."""
CLIP = 0.5
"""Most change of a bin (in units of the logarithm) by a new cycle, so that the profile does not repeat a
flash crowd."""


class LoadProfile:
    """Logarithms of the load by the phase of one period; NaN for phases without an observation."""

    def __init__(self, period: float) -> None:
        self.period = period
        self._bins = round(period / BIN)
        self._levels = array("d", [math.nan] * self._bins)
        self._cycles = array("d", [0.0] * self._bins)

    def learn(self, time: float, level: float) -> None:
        """Learn `level`, the logarithm of the mean load in the bin of `time` (local seconds)."""
        index = int(time // BIN) % self._bins
        cycles = self._cycles[index]
        if cycles == 0:
            self._levels[index] = level
        else:
            gain = max(1 / (cycles + 1), GAIN)
            change = level - self._levels[index]
            self._levels[index] += min(max(gain * change, -CLIP), CLIP)
        self._cycles[index] = cycles + 1

    def at(self, time: float) -> float:
        """Return the usual logarithm of the load at `time` (local seconds), interpolated between the centres
        of two bins; NaN if either has no observation.
        """
        place = time / BIN - 0.5
        low = math.floor(place)
        inside = place - low
        levels, bins = self._levels, self._bins
        first = levels[low % bins]
        return first + inside * (levels[(low + 1) % bins] - first)

    def map(self, convert: Callable[[float], float]) -> None:
        """Replace each level by the result of `convert`."""
        known = (level if math.isnan(level) else convert(level) for level in self._levels)
        self._levels = array("d", known)

    def state(self) -> dict[str, list[float | None]]:
        """Return the profile for JSON."""
        levels = [None if math.isnan(level) else round(level, 5) for level in self._levels]
        return {"levels": levels, "cycles": list(self._cycles)}

    def restore(self, levels: Sequence[float | None], cycles: Sequence[float]) -> None:
        """Restore a result of `state`; a profile of another length is ignored."""
        if len(levels) == self._bins == len(cycles):
            self._levels = array("d", (math.nan if level is None else level for level in levels))
            self._cycles = array("d", cycles)
