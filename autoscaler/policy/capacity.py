"""The capacity of one replica: measured, corrected, or learned from load and latency. Pure.

A span is several readings that together have enough answers to learn from. A replica is saturated while it
has more requests than it can serve, so that requests wait; the rate of saturated replicas is their capacity.
"""

import math
from typing import Any, NamedTuple

from autoscaler.observation import Capacity, Load

STRETCH = 1.5
"""Ratio of the latency to the best latency above which a replica counts as saturated: a third of the latency
is waiting."""
BEST_GAIN = 0.3
"""Weight of a span in the best latency: that of a request that does not wait."""
BEST_DRIFT = 0.003
"""Weight of a span in the best latency if its latency is higher and replicas are busy."""
WORK_GAIN = 0.02
"""Weight of a reading in the mean work of a request."""
FEW = 2.0
"""Requests in flight per replica up to which no replica counts as saturated while the capacity is learned."""
GROWTH = 0.1
"""Share of the answers by which arrivals exceed the answers while a queue grows, or answers exceed the
arrivals while a queue drains."""
GROWING_SECONDS = 10.0
"""Least seconds of growth: two readings."""
LATENCY_RISE = 1.2
"""Ratio of the latency to that at the beginning of a queue's growth, above which replicas are saturated. The
queue must have grown by `GROWTH` for `GROWING_SECONDS`, and for twice that earlier latency."""
PROVEN_KEPT = 0.9999
"""Decay of the highest observed rate at each span without saturation: models are replaced."""
SATURATED_GAIN = 0.3
"""Weight of one span in the rate of saturated replicas, and in a higher observed rate: three spans outweigh
the earlier estimate."""
ROOM = 1.25
"""Ratio to the highest rate of a replica without saturation: the capacity is assumed a quarter beyond it."""
QUEUE = 1.5
"""Ratio of the requests in flight per replica to `Capacity.concurrency` at which replicas count as
saturated."""
SURE_ANSWERS = 50.0
"""Least answers of a span: the mean of service times whose standard deviation is half of it is then known to
7 %."""
FIRST_ANSWERS = 10.0
"""Least answers of the first span, which gives the mean to 16 %: without an estimate the count cannot follow
the load."""
SURE_SECONDS = 30.0
"""Least seconds of a span that corrects a measured capacity."""
LEAST_SHARE = 0.1
MOST_SHARE = 4.0
"""Bounds of a correction, as ratios to the measured capacity: beyond them the profile is of another model."""


class _Unjudged(NamedTuple):
    """A span of busy replicas before the best latency was known, so that saturation could not be judged."""

    rate: float = 0.0
    """Work per second of one replica."""
    latency: float = 0.0
    """Mean latency in seconds."""


class CapacityEstimate:
    """The capacity of one replica of a target whose requests per second and requests in flight are known."""

    def __init__(self, measured: Capacity | None) -> None:
        """Args: measured: by a CapacityProfile; None: the capacity is learned."""
        self._measured = measured
        self._factor = 1.0
        """Ratio of the corrected to the measured rate."""
        self._is_saturated = False
        """Whether replicas were saturated in the last reading; only with a measured capacity."""
        self._answers = 0.0
        """Answers since the last span, as all sums below."""
        self._done = 0.0
        """Work of these answers."""
        self._could = 0.0
        """With a measured capacity, the work of the same replicas and seconds at the measured rate; otherwise
        replica-seconds."""
        self._answer_seconds = 0.0
        """Total latency of the answers, in seconds."""
        self._flight_seconds = 0.0
        """Sum of requests in flight times seconds."""
        self._work = 1.0
        """Mean work of a request."""
        self._best = math.nan
        """Seconds of a request that does not wait; NaN while unknown."""
        self._proven = 0.0
        """Highest observed work per second of one replica; 0 before the first span."""
        self._ceiling = math.inf
        """Work per second of one saturated replica; infinite before any saturation."""
        self._unjudged = _Unjudged()
        """The span with the highest rate of those that could not be judged."""
        self._in_flight = 0.0
        """Requests in flight or held at the end of the last reading."""
        self._is_partial = False
        """Whether every reading of the current span began without a request in flight. Requests may then have
        come only during a part of the readings' seconds, and the rate of the span is a lower bound."""
        self._is_proven_partially = True
        """Whether `_proven` is such a lower bound, or 0."""
        self._growing_since = math.inf
        """Unix seconds since which more requests arrive than are answered."""
        self._latency_before = 0.0
        """Latency in seconds when the growth began."""

    @property
    def source(self) -> str:
        """Return where the value comes from: `Profile`, `Corrected` or `Learned`."""
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
        # Before the best latency is known, replicas may be saturated, and then have no room.
        room = 1.0 if math.isnan(self._best) else ROOM
        rate = min(self._proven * room, self._ceiling)
        if rate <= 0:
            return None
        best = self.best
        if best > 0 and math.isinf(self._ceiling):
            rate = max(rate, self._work / best)  # a replica serves at least one request at a time
        requests_per_second = rate / self._work
        return Capacity(rate, concurrency=max(requests_per_second * best, 1.0))

    def learn(self, load: Load, ready: int) -> None:
        """Learn from a reading while `ready` replicas served."""
        began_idle = self._in_flight <= 0
        self._in_flight = load.in_flight + load.held
        if ready <= 0 or load.seconds <= 0:
            return
        if self._measured is not None:
            self._correct(load, ready, self._measured)
        elif load.finished >= 1:
            if load.arrivals > 0:
                gain = WORK_GAIN if self._proven else 1.0
                self._work += gain * (load.work / load.arrivals - self._work)
            self._learn(load, ready, began_idle=began_idle)

    def _correct(self, load: Load, ready: int, measured: Capacity) -> None:
        """Correct a measured capacity by a reading.

        Readings of saturated replicas and readings of others make spans of their own: saturated replicas show
        the capacity, and the rate of others is a lower bound of it.
        """
        if load.arrivals > 0 and load.finished > 0:
            self._work = load.work / load.arrivals
        # One request more, as at a concurrency of 1 `QUEUE` alone allows only half a waiting request.
        is_saturated = load.in_flight > ready * QUEUE * measured.concurrency + 1
        if is_saturated != self._is_saturated:
            self._is_saturated, self._done, self._could, self._answers = is_saturated, 0.0, 0.0, 0.0
            return  # the change is within this reading
        self._done += self._work * load.finished
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
        """Add a reading to the current span, and learn from the span once it has enough answers.

        `began_idle`: whether the reading began without a request in flight.
        """
        # Without a measured latency, Little's law gives the mean latency.
        latency = load.latency if load.latency is not None else load.in_flight * load.seconds / load.finished
        is_growing = load.in_flight / ready > FEW and load.arrivals - load.finished > GROWTH * load.finished
        if not is_growing:
            self._growing_since = math.inf
        elif math.isinf(self._growing_since):
            self._growing_since, self._latency_before = load.start, latency
        if self._answers <= 0:
            self._is_partial = began_idle
        elif self._is_partial and not began_idle:
            self._clear()  # the earlier readings would lower the rate
            self._is_partial = False
        seconds = load.seconds
        if began_idle and is_growing:
            # The requests may have come during a part of the reading only. Of requests at a constant rate to
            # saturated replicas that answer a share of them, the mean latency of the answers after T seconds
            # is T / 2 * (1 - share). The rate of a new load rises, so that T is too short and the rate of the
            # replicas too high: T counts only below half of the reading, whose idle part is the larger error.
            busy_seconds = 2 * latency / (1 - load.finished / load.arrivals)
            seconds = busy_seconds if busy_seconds < seconds / 2 else seconds
        self._answers += load.finished
        self._done += self._work * load.finished
        self._answer_seconds += latency * load.finished
        self._flight_seconds += load.in_flight * seconds
        self._could += ready * seconds
        if self._is_overtaken(load, latency):
            self._learn_span(is_growing=False, is_draining=False, is_overtaken=True)
        elif self._answers >= (SURE_ANSWERS if self._proven else FIRST_ANSWERS):
            mean_in_flight = latency * load.finished / load.seconds / ready  # per replica, by Little's law
            is_draining = mean_in_flight > FEW and load.finished - load.arrivals > GROWTH * load.finished
            self._learn_span(is_growing=is_growing, is_draining=is_draining, is_overtaken=False)

    def _learn_span(self, *, is_growing: bool, is_draining: bool, is_overtaken: bool) -> None:
        """Learn from the readings since the last span.

        A span with a higher rate raises `_proven`; a `_proven` of a part of a span is replaced. A saturated
        span moves `_ceiling`, and ends here. A busy span before the best latency is known is remembered in
        `_unjudged`. A span with a growing queue teaches no more, nor one with a draining queue before the
        best latency is known. Any other span moves `_best`, lets `_proven` decay, and raises a ceiling that
        its rate exceeds.

        Args:
            is_growing: whether the queue grows.
            is_draining: whether the queue drains.
            is_overtaken: whether replicas are saturated by `_is_overtaken`.
        """
        rate = self._done / self._could  # work per second of one replica
        latency = self._answer_seconds / self._answers
        in_flight = self._flight_seconds / self._could  # per replica
        self._clear()
        if self._is_proven_partially:
            self._proven, self._is_proven_partially = rate, self._is_partial
        else:
            self._proven += SATURATED_GAIN * max(rate - self._proven, 0.0)
        if is_overtaken or (in_flight > FEW and latency > STRETCH * self._best):
            before = rate if math.isinf(self._ceiling) else self._ceiling
            self._ceiling = before + SATURATED_GAIN * (rate - before)
            return
        is_first = math.isnan(self._best)
        if is_first and in_flight > FEW:
            self._unjudged = max(self._unjudged, _Unjudged(rate, latency))
        if is_growing or (is_first and is_draining):
            return  # these requests may have waited: neither a best latency nor certain saturation
        if is_first:
            self._best = latency
            if self._unjudged.latency > STRETCH * latency:  # its replicas were saturated
                self._ceiling = min(self._ceiling, self._unjudged.rate)
        # A part of a higher latency may be waiting; but models are replaced, and are slower in batches.
        gain = BEST_DRIFT if latency > self._best and in_flight > 1 else BEST_GAIN
        self._best += gain * (latency - self._best)
        self._proven *= PROVEN_KEPT
        if rate > self._ceiling:  # without saturation: the ceiling was too low
            self._ceiling += SATURATED_GAIN * (rate * ROOM - self._ceiling)

    def _clear(self) -> None:
        """Begin a span."""
        self._done = self._could = self._answers = self._answer_seconds = self._flight_seconds = 0.0

    def _is_overtaken(self, load: Load, latency: float) -> bool:
        """Return whether arrivals have exceeded answers until the latency rose: replicas are saturated.

        The latency alone does not suffice, as it may never have been low. Growth alone does not suffice, as
        requests in flight also grow while the load of slow answers rises.
        """
        growing_seconds = load.end - self._growing_since
        least_seconds = max(GROWING_SECONDS, 2 * self._latency_before)
        return growing_seconds >= least_seconds and latency > LATENCY_RISE * self._latency_before

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "measured": self._measured.rate if self._measured is not None else None,
            "factor": self._factor,
            "best": None if math.isnan(self._best) else self._best,
            "proven": self._proven,
            "work": self._work,
            "ceiling": None if math.isinf(self._ceiling) else self._ceiling,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`; the correction of another measured capacity is ignored."""
        # Older states have no measured rate.
        if self._measured is not None and state.get("measured", self._measured.rate) == self._measured.rate:
            self._factor = float(state["factor"])
        self._best = math.nan if state["best"] is None else float(state["best"])
        self._proven = float(state["proven"])
        self._is_proven_partially = self._proven <= 0
        self._work = float(state["work"])
        self._ceiling = math.inf if state["ceiling"] is None else float(state["ceiling"])
