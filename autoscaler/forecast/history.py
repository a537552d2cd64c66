"""The load of the last two weeks in five-minute bins, as regressions are fitted to it. Pure."""

import base64
import binascii
import math
import sys
from array import array
from typing import Any

from autoscaler.forecast.profile import BIN, DAY

DAY_BINS = round(DAY / BIN)
MOST = 14 * DAY_BINS
"""Bins that are kept: 16 KB, of which the last week has a week before it."""
_WIRE = "little"


class History:
    """Logarithms of the load, without gaps: a bin without readings is as the one a day before, else as the
    one before.
    """

    def __init__(self) -> None:
        self.levels = array("f")
        """The oldest first."""
        self.end = -1
        """Index of the first bin after the last one: Unix seconds over `BIN`."""

    def __len__(self) -> int:
        return len(self.levels)

    def add(self, index: int, level: float) -> None:
        """Take the mean of a bin. One that is known already is passed over: the clock was set back."""
        levels = self.levels
        missing = index - self.end if levels else 0
        if missing < 0 and -missing < DAY_BINS:
            return
        if missing < 0 or missing >= MOST - 1:
            del levels[:]
            missing = 0
        for _ in range(missing):
            levels.append(levels[-DAY_BINS] if len(levels) >= DAY_BINS else levels[-1])
        levels.append(level)
        self.end = index + 1
        if len(levels) > MOST:
            del levels[: len(levels) - MOST]

    def state(self) -> dict[str, Any]:
        """Return what is known, for JSON: 32-bit little-endian numbers, in base64."""
        levels = array("f", self.levels)
        if sys.byteorder != _WIRE:
            levels.byteswap()
        return {"end": self.end, "levels": base64.b64encode(levels.tobytes()).decode()}

    def restore(self, end: int, levels: str) -> None:
        """Take what `state` returned; what no history can be is ignored."""
        try:
            raw = base64.b64decode(levels, validate=True)
        except binascii.Error:
            return
        if len(raw) % 4 or len(raw) > 4 * MOST:
            return
        read = array("f", raw)
        if sys.byteorder != _WIRE:
            read.byteswap()
        if all(map(math.isfinite, read)):
            self.levels, self.end = read, int(end)
