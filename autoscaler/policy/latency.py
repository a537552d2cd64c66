"""Meets latency targets by sizing: the load per replica at which a percentile stays within its target,
learned online. Pure.

A queue ratio (replicas x latency / target) winds up: latency stays high until new replicas are ready, and for
ever where the model itself is slower than the target. So replicas follow load / capacity, and latency only
moves the capacity, only while the number of ready replicas stays the same.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.decision import Demand
from autoscaler.observation import Capacity, Load, Percentile, Replicas
from autoscaler.policy.config import Metric

WINDOW = 60.0
"""Seconds of answers that a percentile is of; load is summed over the same."""
SETTLED = 75.0
"""Seconds for which as many replicas must have been ready: the window, and the time by which gateways'
histograms are late."""
STRIDE = 15.0
"""Seconds between percentiles that are learned from: four in a window, which share answers."""
ROOM = 0.25
"""Over the highest load that met the target while none broke it: what was never tried is assumed a quarter
further at most."""
EASY = 0.7
"""Of the target: a percentile below this leaves room to try a higher load; one nearer is left where it is."""
BETWEEN = 0.5
"""Where the capacity lies between the highest load that met the target and the lowest that broke it."""
CAUTION = 0.9
"""Of the lowest load that broke the target: the capacity is no more than this."""
BREAK_GAIN = 0.5
"""Weight of one reading that broke the target at a lower load than all before; bursts break it too."""
FADE = 900.0
"""Seconds after which the lowest load that broke the target counts as e times higher, while percentiles are near 0: an
outage of something that replicas depend on is forgotten within the hour."""
FEW = 0.5
"""Requests in flight per replica below which hardly any waits for another: more replicas do not make answers
faster."""
LESS = 0.7
"""Of the load per replica at which the target was broken first: from here on it is asked whether less of it helps."""
SMOOTH = 0.3
"""Weight of one reading of the percentile at less load."""
LONGEST = 300.0
"""Seconds: the last bound of gateways' histograms, beyond which two percentiles look the same and say nothing
of each other."""
TOLERANCE = 0.1
"""Of a replica: load beyond the last whole replica by less than this is not worth another."""


class LatencyTarget:
    """One metric of the type Latency."""

    def __init__(self, metric: Metric, prior: float | None) -> None:
        """Args: prior: work per second of one replica by a CapacityProfile; None: nobody has measured it."""
        self.metric = metric
        self.target = metric.target or math.inf
        self._prior = prior
        self._met = self._room = 0.0
        """The highest load per replica that met the target, and the share of `ROOM` that it left."""
        self._broke = math.inf
        """The lowest one that broke it."""
        self._slow: tuple[float, float] | None = None
        """Load per replica and percentile of the reading that broke the target first since it was met."""
        self._slower: tuple[float, float] | None = None
        """The same of those that broke it at less load."""
        self._futile = False
        """Whether more replicas would not help."""
        self._learned = -math.inf
        self._last: Percentile | None = None

    @property
    def capacity(self) -> float | None:
        """Return the work per second of one replica at which the percentile stays within its target; None:
        not known.
        """
        met, room = self._met, self._room
        if not met and self._prior is not None:
            met, room = self._prior, 0.0
        if math.isinf(self._broke):
            return met * (1 + ROOM * room) or None
        met = min(met, CAUTION * self._broke)
        return min(met + BETWEEN * (self._broke - met), CAUTION * self._broke)

    def learn(self, load: float, in_flight: float, now: float) -> None:
        """Learn from the percentile that was seen last.

        Args:
            load: work per second of one replica, over the same time, with as many replicas ready all the time.
            in_flight: requests of one replica, over the same time.
            now: Unix seconds.
        """
        seconds = self._last.seconds if self._last is not None else None
        if seconds is None or load <= 0 or not math.isfinite(load):
            return
        passed = now - self._learned
        if 0 <= passed < STRIDE:
            return
        self._learned = now
        if seconds <= self.target:
            self._take_met(load, seconds, min(max(passed, 0.0), WINDOW))
        else:
            self._take_broken(load, seconds, in_flight)

    def _take_met(self, load: float, seconds: float, passed: float) -> None:
        self._slow, self._slower, self._futile = None, None, False
        room = max(1 - seconds / (EASY * self.target), 0.0)
        self._broke *= math.exp(passed * room / FADE)
        if load >= self._met:
            self._met, self._room = load, room
        if load > self._broke:
            self._broke += BREAK_GAIN * (load * (1 + ROOM) - self._broke)

    def _take_broken(self, load: float, seconds: float, in_flight: float) -> None:
        if in_flight <= FEW:
            self._futile = True
            return
        if self._slow is None or load > self._slow[0]:
            self._slow, self._slower = (load, seconds), None
        elif load <= LESS * self._slow[0] and seconds < LONGEST:
            if self._slower is None or load <= LESS * self._slower[0]:
                self._slow, self._slower = self._slower or self._slow, (load, seconds)
            else:
                before = self._slower
                self._slower = (
                    before[0] + SMOOTH * (load - before[0]), before[1] + SMOOTH * (seconds - before[1]),
                )  # fmt: skip
        self._futile = self._unloaded > self.target
        if not self._futile and load < self._broke:
            self._broke = load if math.isinf(self._broke) else self._broke + BREAK_GAIN * (load - self._broke)

    @property
    def _unloaded(self) -> float:
        """Return the least that the percentile can be without any load, by two readings; 0 where that is not known.

        Latency is a convex function of load, so that at no load it is above the line through two points of it.
        """
        if self._slow is None or self._slower is None:
            return 0.0
        (high, slow), (low, less_slow) = self._slow, self._slower
        return less_slow - max(slow - less_slow, 0.0) / (high - low) * low if high > low else 0.0

    def see(self, found: Percentile | None) -> None:
        """Remember what is known now: nothing where it is absent or no number of seconds."""
        is_absurd = found is not None and found.seconds is not None and not 0 <= found.seconds < math.inf
        self._last = None if is_absurd else found

    def demand(self, rate: float, replicas: Replicas) -> Demand:
        """Return the replicas that meet the target at `rate` (work per second); None holds the count."""
        name, found, capacity = self.metric.name, self._last, self.capacity
        count = 0
        if capacity is not None:
            count = math.ceil(rate / capacity - TOLERANCE)
        if found is None:
            return Demand(name, count if count > replicas.desired else None, "not measured")
        value = found.seconds
        if value is None:
            return Demand(name, count, "too few answers to tell")
        words = f"{self.metric.percentile:g} % of the answers take at most {value:.3g} s, {self.target:g} s wanted"
        if self._futile:
            return Demand(
                name, None, f"{words}: more replicas do not make them faster, and the count is held", value
            )
        if capacity is None:
            return Demand(name, None, words, value)
        return Demand(name, count, f"{words}: {rate:.3g} per second at {capacity:.3g} each", value)

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {
            "target": self.target,
            "met": self._met,
            "room": self._room,
            "broke": None if math.isinf(self._broke) else self._broke,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what `state` returned; of another target it says nothing."""
        if state.get("target") == self.target:
            self._met, self._room = float(state["met"]), float(state["room"])
            self._broke = math.inf if state["broke"] is None else float(state["broke"])


class LatencyTargets:
    """All metrics of the type Latency of one target, and the load of one replica over the last minute."""

    def __init__(self, metrics: Iterable[Metric], capacity: Capacity | None) -> None:
        prior = capacity.rate if capacity is not None else None
        self.targets = [LatencyTarget(metric, prior) for metric in metrics if metric.type == "Latency"]
        self._loads: deque[Load] = deque()
        self._ready, self._since = 0, math.inf

    def take(self, load: Load, ready: int) -> None:
        """Take a reading while `ready` replicas served."""
        if not self.targets:
            return
        if ready != self._ready or load.end < self._since:
            self._ready, self._since = ready, load.end
            self._loads.clear()
        self._loads.append(load)
        while load.end - self._loads[0].start > WINDOW and len(self._loads) > 1:
            self._loads.popleft()

    def learn(self, found: Mapping[str, Percentile], now: float) -> None:
        """Take the percentiles of about the last minute, by metric name."""
        for target in self.targets:
            target.see(found.get(target.metric.name))
        if not self._loads or self._ready <= 0 or self._loads[-1].end - self._since < SETTLED:
            return
        seconds = sum(load.seconds for load in self._loads)
        work = sum(load.work for load in self._loads)
        arrivals = sum(load.arrivals for load in self._loads)
        finished = sum(load.finished for load in self._loads)
        if seconds <= 0:
            return
        # While a backlog is worked off, replicas carry more than arrives, and are slow by that.
        served = finished * work / arrivals if arrivals > 0 else finished
        each = max(work, served) / seconds / self._ready
        in_flight = sum(load.in_flight * load.seconds for load in self._loads) / seconds / self._ready
        for target in self.targets:
            target.learn(each, in_flight, now)

    def demands(self, rate: float, replicas: Replicas) -> list[Demand]:
        """Return what the targets ask for at `rate` (work per second)."""
        return [target.demand(rate, replicas) for target in self.targets]

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {target.metric.name: target.state() for target in self.targets}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what `state` returned."""
        for target in self.targets:
            if target.metric.name in state:
                target.restore(state[target.metric.name])
