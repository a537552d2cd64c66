"""The load of the last two weeks in five-minute bins, the input of the regressions. Pure."""

import base64
import math
import sys
from array import array
from collections.abc import Callable
from typing import Any

from autoscaler.forecast.profile import BIN, DAY

DAY_BINS = round(DAY / BIN)
MOST_BINS = 14 * DAY_BINS
"""Two weeks (16 KB), so that each bin of the last week has a bin a week before."""
_STORED_ORDER = "little"
"""Byte order of the numbers in a stored state."""


class History:
    """Logarithms of the load, without gaps. A bin without readings repeats the bin a day before, or without
    one the previous bin.
    """

    def __init__(self) -> None:
        self.levels = array("f")
        """The oldest first."""
        self.end = -1
        """Index of the bin after the last bin: local seconds divided by `BIN`, as for `Profile.learn`."""

    def __len__(self) -> int:
        return len(self.levels)

    def add(self, index: int, level: float) -> None:
        """Add the level of the bin `index`.

        A bin less than a day earlier is ignored: the clock was set back, or an hour is repeated. After a
        longer step back, or one of two weeks forward, the history starts again.
        """
        levels = self.levels
        missing = index - self.end if levels else 0
        if missing < 0 and -missing < DAY_BINS:
            return
        if missing < 0 or missing >= MOST_BINS - 1:
            del levels[:]
            missing = 0
        for _ in range(missing):
            levels.append(levels[-DAY_BINS] if len(levels) >= DAY_BINS else levels[-1])
        levels.append(level)
        self.end = index + 1
        if len(levels) > MOST_BINS:
            del levels[: len(levels) - MOST_BINS]

    def map(self, convert: Callable[[float], float]) -> None:
        """Replace each level by the result of `convert`."""
        self.levels = array("f", map(convert, self.levels))

    def state(self) -> dict[str, Any]:
        """Return the history for JSON: 32-bit little-endian numbers in base64."""
        levels = array("f", self.levels)
        if sys.byteorder != _STORED_ORDER:
            levels.byteswap()
        return {"end": self.end, "levels": base64.b64encode(levels.tobytes()).decode()}

    def restore(self, end: int, levels: str) -> None:
        """Restore a result of `state`; invalid levels are ignored."""
        try:
            raw = base64.b64decode(levels, validate=True)
        except ValueError:
            return
        if len(raw) % 4 or len(raw) > 4 * MOST_BINS:
            return
        numbers = array("f", raw)
        if sys.byteorder != _STORED_ORDER:
            numbers.byteswap()
        if all(map(math.isfinite, numbers)):
            self.levels, self.end = numbers, int(end)
