"""What one replica can take: as it was measured, corrected by what is seen, or learned from load and latency. Pure."""

import math
from typing import Any

from autoscaler.observation import Capacity, Load

STRETCH = 2.0
"""Latency over its best at which a replica counts as saturated: at that point half of it is waiting."""
BEST_DRIFT = 0.02
"""Share of the difference by which the best latency follows a slower one at each reading: models are replaced."""
SATURATED_GAIN = 0.3
"""Weight of one saturated span: three say more than what was known before."""
ROOM = 1.25
"""Over the most that a replica has carried without saturation: what was never tried is assumed a quarter further."""
QUEUE = 1.5
"""Requests in flight per replica over `Capacity.concurrency` from which a measured capacity is doubted."""
SURE_ANSWERS = 50.0
"""Answered requests that a correction stands on: times of service that vary by half of their mean say it to 7 %."""
SURE_SECONDS = 30.0
"""Seconds that a correction stands on at least."""
LEAST_SHARE = 0.1
MOST_SHARE = 4.0
"""Of a measured capacity: bounds of a correction; what is further off is another model's profile."""


class CapacityEstimate:
    """The capacity of one replica of a target, of which requests per second and requests in flight are known."""

    def __init__(self, measured: Capacity | None) -> None:
        self._measured = measured
        self._factor = 1.0
        """Of the measured rate, as corrected."""
        self._is_saturated = False
        self._done = self._could = self._answers = 0.0
        """Work that was done, work that the measured rate would have done, and requests that were answered, in the readings
        of one kind since the last correction."""
        self._work = 1.0
        """Of a request, at the last reading."""
        self._best = math.nan
        self._proven = 0.0
        self._ceiling = math.inf
        self._concurrency = math.nan

    @property
    def source(self) -> str:
        """`Profile`, `Corrected` or `Learned`."""
        if self._measured is None:
            return "Learned"
        return "Profile" if self._factor == 1.0 else "Corrected"

    @property
    def best(self) -> float:
        """Return the seconds of a request that does not wait; 0 where it is not known."""
        if self._measured is not None:
            return self._measured.concurrency / self._measured.rate
        return 0.0 if math.isnan(self._best) else self._best

    @property
    def value(self) -> Capacity | None:
        """Return what one replica can take; None as long as nothing is known."""
        if self._measured is not None:
            return Capacity(self._measured.rate * self._factor, self._measured.concurrency)
        rate = min(self._proven * ROOM, self._ceiling)
        if rate <= 0:
            return None
        best = 0.0 if math.isnan(self._best) else self._best
        return Capacity(rate, max(rate * best * STRETCH, 1.0))

    def learn(self, load: Load, ready: int) -> None:
        """Take a reading while `ready` replicas served."""
        if ready <= 0 or load.seconds <= 0 or load.finished < (self._measured is None):
            return
        if self._measured is not None:
            self._correct(load, ready)
        else:
            self._learn(load.finished / load.seconds / ready, load.in_flight / ready, load)

    def _correct(self, load: Load, ready: int) -> None:
        """Correct a measured capacity by whole spans of one kind: saturated ones show the most that replicas carry."""
        measured = self._measured
        assert measured is not None
        work = load.finished * (load.work / load.arrivals if load.arrivals > 0 else self._work)
        self._work = work / load.finished if load.finished > 0 else self._work
        is_saturated = load.in_flight > ready * QUEUE * measured.concurrency + 1
        if is_saturated != self._is_saturated:
            self._is_saturated, self._done, self._could, self._answers = is_saturated, 0.0, 0.0, 0.0
            return  # the change lies somewhere within this reading
        self._done += work
        self._could += measured.rate * ready * load.seconds
        self._answers += load.finished
        if self._answers < SURE_ANSWERS or self._could < SURE_SECONDS * measured.rate * ready:
            return
        share = min(max(self._done / self._could, LEAST_SHARE), MOST_SHARE)
        self._done = self._could = self._answers = 0.0
        if is_saturated:
            self._factor += SATURATED_GAIN * (share - self._factor)
        elif share > self._factor:
            self._factor = share

    def _learn(self, carried: float, each: float, load: Load) -> None:
        latency = load.latency if load.latency is not None else each / carried
        if math.isnan(self._best) or latency < self._best:
            self._best = latency
        else:
            self._best += BEST_DRIFT * 0.1 * (latency - self._best)
        if latency > STRETCH * self._best and each > 2:
            before = carried if math.isinf(self._ceiling) else self._ceiling
            self._ceiling = before + SATURATED_GAIN * (carried - before)
        else:
            self._proven = max(self._proven * 0.99999, carried)
            if carried > self._ceiling:
                self._ceiling = carried * ROOM

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {
            "factor": self._factor,
            "best": None if math.isnan(self._best) else self._best,
            "proven": self._proven,
            "ceiling": None if math.isinf(self._ceiling) else self._ceiling,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take what `state` returned."""
        self._factor = float(state["factor"]) if self._measured is not None else 1.0
        self._best = math.nan if state["best"] is None else float(state["best"])
        self._proven = float(state["proven"])
        self._ceiling = math.inf if state["ceiling"] is None else float(state["ceiling"])
