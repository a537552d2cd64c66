"""The usual load at each time of a day or a week, from which one odd day cannot pull it far."""

import math
from array import array
from collections.abc import Sequence

BIN = 300.0
"""Seconds of a bin: 288 a day, the resolution at which daily shapes are smooth (traces of a day to three months)."""
DAY = 86_400.0
WEEK = 7 * DAY
GAIN = 0.35
"""Weight of the newest cycle once there are several: half of what is known is two cycles old."""
CLIP = 0.5
"""A bin moves by at most this (in units of the logarithm) towards a new cycle, so that a flash crowd does not
return."""


class Profile:
    """Logarithms of the load by the phase of one period; phases that were never seen are unknown (NaN)."""

    def __init__(self, period: float) -> None:
        self.period = period
        self._bins = round(period / BIN)
        self._levels = array("d", [math.nan] * self._bins)
        self._cycles = array("d", [0.0] * self._bins)

    def learn(self, time: float, level: float) -> None:
        """Take the mean of the logarithm of the load in the bin that `time` (local seconds) lies in."""
        index = int(time // BIN) % self._bins
        seen = self._cycles[index]
        if seen == 0:
            self._levels[index] = level
        else:
            gain = max(1 / (seen + 1), GAIN)
            change = level - self._levels[index]
            self._levels[index] += min(max(gain * change, -CLIP), CLIP)
        self._cycles[index] = seen + 1

    def at(self, time: float) -> float:
        """Return the usual logarithm of the load at a time, between the centres of bins; NaN where it is unknown."""
        place = time / BIN - 0.5
        low = math.floor(place)
        inside = place - low
        first, second = self._levels[low % self._bins], self._levels[(low + 1) % self._bins]
        return first + inside * (second - first)

    def state(self) -> dict[str, list[float | None]]:
        """Return what is known, for JSON."""
        levels = [None if math.isnan(level) else round(level, 5) for level in self._levels]
        return {"levels": levels, "cycles": list(self._cycles)}

    def restore(self, levels: Sequence[float | None], cycles: Sequence[float]) -> None:
        """Take what `state` returned; of another length it is ignored."""
        if len(levels) == self._bins == len(cycles):
            self._levels = array("d", (math.nan if level is None else level for level in levels))
            self._cycles = array("d", cycles)
