"""The capacity of one replica: measured, corrected, or learned from load and latency. Pure."""

import math
from typing import Any

from autoscaler.observation import Capacity, Load

STRETCH = 1.5
"""Ratio to the best latency from which a replica counts as saturated: a third of it is waiting."""
BEST_GAIN = 0.3
"""Weight of a span in the latency of a request that does not wait."""
BEST_DRIFT = 0.003
"""Weight of a span with higher latency and busy replicas."""
WORK_GAIN = 0.02
"""Weight of a reading in the mean work of a request."""
FEW = 2.0
"""Requests in flight per replica up to which a replica never counts as saturated."""
GROWTH = 0.1
"""Share of the answered requests by which arrivals must exceed them for a growing queue."""
GROWING_SECONDS = 10.0
"""Least seconds of growth: two readings."""
LATENCY_RISE = 1.2
"""Ratio to the latency at the beginning, after a queue has grown by a tenth for two latencies."""
PROVEN_KEPT = 0.9999
"""Decay of the proven rate at each span: models are replaced."""
SATURATED_GAIN = 0.3
"""Weight of one saturated span: three spans outweigh the earlier estimate."""
ROOM = 1.25
"""Ratio to the highest rate of a replica without saturation: the capacity is assumed a quarter beyond it."""
QUEUE = 1.5
"""Ratio of the requests in flight per replica to `Capacity.concurrency` at which replicas count as
saturated."""
SURE_ANSWERS = 50.0
"""Answered requests of a correction: the mean of service times that vary by half of it is known to 7 %."""
FIRST_ANSWERS = 10.0
"""Answered requests of the first estimate, good to 16 %: without one the count cannot follow the load."""
SURE_SECONDS = 30.0
"""Least seconds of a correction."""
LEAST_SHARE = 0.1
MOST_SHARE = 4.0
"""Bounds of a correction, as ratios to the measured capacity: beyond them the profile is of another model."""


class CapacityEstimate:
    """The capacity of one replica of a target with known requests per second and requests in flight."""

    def __init__(self, measured: Capacity | None) -> None:
        self._measured = measured
        self._factor = 1.0
        """Ratio of the corrected to the measured rate."""
        self._is_saturated = False
        self._done = self._could = self._answers = 0.0
        """Work that was done, work at the measured rate, and answered requests, in the readings of one kind
        (saturated or not) since the last correction."""
        self._work = 1.0
        """Mean work of a request."""
        self._waited = self._busy = 0.0
        """Seconds of the answered requests, and requests in flight by their seconds, since the last span."""
        self._best = math.nan
        self._proven = 0.0
        self._ceiling = math.inf
        self._unjudged = (0.0, 0.0)
        """Highest work per second of a replica before the best latency was known, and the latency at it."""
        self._in_flight = 0.0
        """Requests in flight or held at the end of the last reading."""
        self._is_partial = False
        """Whether all readings since the last span began without a request in flight: requests may have come
        during a part of these seconds only."""
        self._is_proven_partially = True
        """Whether the same holds for the readings of the proven rate."""
        self._growing_since = math.inf
        """Unix seconds since which more requests arrive than are answered."""
        self._latency_before = 0.0
        """Latency in seconds when the growth began."""

    @property
    def source(self) -> str:
        """`Profile`, `Corrected` or `Learned`."""
        if self._measured is None:
            return "Learned"
        return "Profile" if self._factor == 1.0 else "Corrected"

    @property
    def best(self) -> float:
        """Return the seconds of a request that does not wait; 0 while unknown."""
        if self._measured is not None:
            return self._measured.concurrency / self._measured.rate
        return 0.0 if math.isnan(self._best) else self._best

    @property
    def value(self) -> Capacity | None:
        """Return the capacity of one replica; None while it is unknown."""
        if self._measured is not None:
            return Capacity(self._measured.rate * self._factor, self._measured.concurrency)
        room = 1.0 if math.isnan(self._best) else ROOM
        rate = min(self._proven * room, self._ceiling)
        if rate <= 0:
            return None
        best = 0.0 if math.isnan(self._best) else self._best
        if best > 0 and math.isinf(self._ceiling):
            rate = max(rate, self._work / best)  # a replica serves at least one request at a time
        return Capacity(rate, max(rate / self._work * best, 1.0))

    def learn(self, load: Load, ready: int) -> None:
        """Learn from a reading while `ready` replicas served."""
        began_idle = self._in_flight <= 0
        self._in_flight = load.in_flight + load.held
        if ready <= 0 or load.seconds <= 0 or load.finished < (self._measured is None):
            return
        if self._measured is not None:
            self._correct(load, ready)
        else:
            if load.arrivals > 0:
                self._work += (
                    WORK_GAIN * (load.work / load.arrivals - self._work)
                    if self._proven
                    else (load.work / load.arrivals - self._work)
                )
            self._learn(load, ready, began_idle=began_idle)

    def _correct(self, load: Load, ready: int) -> None:
        """Correct a measured capacity by whole spans of one kind: saturated spans show the highest rate."""
        measured = self._measured
        assert measured is not None
        work = load.finished * (load.work / load.arrivals if load.arrivals > 0 else self._work)
        self._work = work / load.finished if load.finished > 0 else self._work
        is_saturated = load.in_flight > ready * QUEUE * measured.concurrency + 1
        if is_saturated != self._is_saturated:
            self._is_saturated, self._done, self._could, self._answers = is_saturated, 0.0, 0.0, 0.0
            return  # the change is within this reading
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

    def _learn(self, load: Load, ready: int, *, began_idle: bool) -> None:
        each = load.in_flight / ready
        latency = load.latency if load.latency is not None else load.in_flight * load.seconds / load.finished
        is_growing = each > FEW and load.arrivals - load.finished > GROWTH * load.finished
        if not is_growing:
            self._growing_since = math.inf
        elif math.isinf(self._growing_since):
            self._growing_since, self._latency_before = load.start, latency
        if self._answers <= 0:
            self._is_partial = began_idle
        elif self._is_partial and not began_idle:
            self._clear()
            self._is_partial = False
        seconds = load.seconds
        if began_idle and is_growing:
            # Where requests came at a constant rate to saturated replicas, the mean latency of the answered
            # requests is half of the time since the first one, times the share that was not answered.
            # The rate of a new load rises, which makes this time too short: it counts where it is far off.
            busy = 2 * latency / (1 - load.finished / load.arrivals)
            seconds = busy if busy < seconds / 2 else seconds
        self._answers += load.finished
        self._done += self._work * load.finished
        self._waited += latency * load.finished
        self._busy += load.in_flight * seconds
        self._could += ready * seconds
        if self._is_overtaken(load, latency):
            self._learn_span(is_growing=False, is_draining=False, is_overtaken=True)
        elif self._answers >= (SURE_ANSWERS if self._proven else FIRST_ANSWERS):
            mean = latency * load.finished / load.seconds / ready
            is_draining = mean > FEW and load.finished - load.arrivals > GROWTH * load.finished
            self._learn_span(is_growing=is_growing, is_draining=is_draining, is_overtaken=False)

    def _learn_span(self, *, is_growing: bool, is_draining: bool, is_overtaken: bool) -> None:
        """Learn from the readings since the last span."""
        carried, latency, each = (
            self._done / self._could,
            self._waited / self._answers,
            self._busy / self._could,
        )
        self._clear()
        if self._is_proven_partially:
            self._proven, self._is_proven_partially = carried, self._is_partial
        else:
            self._proven += SATURATED_GAIN * max(carried - self._proven, 0.0)
        if is_overtaken or (each > FEW and latency > STRETCH * self._best):
            before = carried if math.isinf(self._ceiling) else self._ceiling
            self._ceiling = before + SATURATED_GAIN * (carried - before)
            return
        is_first = math.isnan(self._best)
        if is_first and each > FEW:
            self._unjudged = max(self._unjudged, (carried, latency))
        if is_growing or (is_first and is_draining):
            return  # these requests may have waited: neither a best latency nor certain saturation
        if is_first:
            self._best = latency
            if self._unjudged[1] > STRETCH * latency:
                self._ceiling = min(self._ceiling, self._unjudged[0])
        # A part of a higher latency may be waiting; but models are replaced, and are slower in batches.
        gain = BEST_DRIFT if latency > self._best and each > 1 else BEST_GAIN
        self._best += gain * (latency - self._best)
        self._proven *= PROVEN_KEPT
        if carried > self._ceiling:
            self._ceiling += SATURATED_GAIN * (carried * ROOM - self._ceiling)

    def _clear(self) -> None:
        self._done = self._could = self._answers = self._waited = self._busy = 0.0

    def _is_overtaken(self, load: Load, latency: float) -> bool:
        """Return whether arrivals have exceeded answers until the latency rose: replicas are saturated.

        Neither sign suffices alone: latency may never have been low, and requests in flight also grow while
        the load of slow answers rises.
        """
        seconds = load.end - self._growing_since
        lasting = max(GROWING_SECONDS, 2 * self._latency_before)
        return seconds >= lasting and latency > LATENCY_RISE * self._latency_before

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "factor": self._factor,
            "best": None if math.isnan(self._best) else self._best,
            "proven": self._proven,
            "work": self._work,
            "ceiling": None if math.isinf(self._ceiling) else self._ceiling,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`."""
        self._factor = float(state["factor"]) if self._measured is not None else 1.0
        self._best = math.nan if state["best"] is None else float(state["best"])
        self._proven = float(state["proven"])
        self._is_proven_partially = self._proven <= 0
        self._work = float(state["work"])
        self._ceiling = math.inf if state["ceiling"] is None else float(state["ceiling"])
