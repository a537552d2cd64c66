"""Meets latency targets by sizing: the load per replica at which a percentile stays within its target,
learned online. Pure.

A queue ratio (replicas x latency / target) winds up: latency stays high until new replicas are ready, and
always where the model itself is slower than the target. So replicas follow load / capacity; latency only
moves the capacity, and only while the number of ready replicas stays the same.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from autoscaler.decision_values import MetricNeed
from autoscaler.observation import Capacity, Load, Percentile, Replicas
from autoscaler.policy.config import Metric

WINDOW = 60.0
"""Seconds of the answers in a percentile; load is summed over the same window."""
SETTLED = 75.0
"""Seconds for which the number of ready replicas must have been the same: the window, and the delay of the
gateways' histograms."""
STRIDE = 15.0
"""Seconds between learned percentiles: four in a window, which share answers."""
ROOM = 0.25
"""Most share by which the capacity exceeds the highest load that met the target, while no load broke it."""
EASY = 0.7
"""Share of the target below which a percentile leaves room for a higher load."""
BETWEEN = 0.5
"""Position of the capacity between the highest load that met the target and the lowest load that broke it."""
CAUTION = 0.9
"""Largest ratio of the capacity to the lowest load that broke the target."""
BREAK_GAIN = 0.5
"""Weight of one reading in the lowest load that broke the target: a burst may break it by chance."""
FADE = 900.0
"""Seconds after which the lowest load that broke the target counts as e times higher, while percentiles are
near 0: the outage of a dependency is forgotten within the hour."""
FEW = 0.5
"""Requests in flight per replica below which requests hardly wait: more replicas do not reduce latency."""
LESS = 0.7
"""Share of the load per replica that first broke the target: percentiles at loads below it show whether less
load reduces latency."""
SMOOTH = 0.3
"""Weight of one reading of the percentile at less load."""
LONGEST = 300.0
"""Seconds: the last bound of gateways' histograms, beyond which percentiles cannot be compared."""
TOLERANCE = 0.1
"""Share of a replica by which load may exceed a whole number of replicas without adding one."""


class _Broken(NamedTuple):
    """A reading that broke the target."""

    load: float
    """Work per second of one replica."""
    seconds: float
    """The percentile."""


class LatencyTarget:
    """One metric of the type Latency."""

    def __init__(self, metric: Metric, prior: float | None) -> None:
        """Args: prior: work per second of one replica by a CapacityProfile; None: not measured."""
        self.metric = metric
        self.target_value = metric.target_value or math.inf
        """Seconds."""
        self._prior = prior
        self._met = 0.0
        """The highest load per replica that met the target; 0 before any."""
        self._room = 0.0
        """Share of `ROOM` that the percentile left at `_met`, 0 to 1."""
        self._broke = math.inf
        """The lowest load per replica that broke the target; infinite before any."""
        self._at_high_load: _Broken | None = None
        self._at_low_load: _Broken | None = None
        """Since the target was met last, a reading that broke it at a high load, and the mean of readings
        that broke it at no more than `LESS` of that load. The two show whether less load reduces latency."""
        self._is_futile = False
        """Whether more replicas would not reduce latency enough."""
        self._learned = -math.inf
        """Unix seconds of the last learned percentile."""
        self._last: Percentile | None = None
        """The current percentile; None: not measured."""

    @property
    def capacity(self) -> float | None:
        """Return the work per second of one replica at which the percentile stays within its target; None
        while unknown.
        """
        met, room = self._met, self._room
        if not met and self._prior is not None:
            met, room = self._prior, 0.0
        if math.isinf(self._broke):
            return met * (1 + ROOM * room) or None
        met = min(met, CAUTION * self._broke)
        return min(met + BETWEEN * (self._broke - met), CAUTION * self._broke)

    def learn(self, load: float, in_flight: float, now: float) -> None:
        """Learn from the last percentile.

        Args:
            load: work per second of one replica over the same window, with constant ready replicas.
            in_flight: mean requests in flight of one replica over the same window.
            now: Unix seconds.
        """
        seconds = self._last.seconds if self._last is not None else None
        if seconds is None or load <= 0 or not math.isfinite(load):
            return
        passed = now - self._learned
        if 0 <= passed < STRIDE:
            return
        self._learned = now
        if seconds <= self.target_value:
            self._take_met(load, seconds, min(max(passed, 0.0), WINDOW))
        else:
            self._take_broken(load, seconds, in_flight)

    def _take_met(self, load: float, seconds: float, passed: float) -> None:
        """Learn from a percentile within the target, `passed` seconds after the last one."""
        self._at_high_load, self._at_low_load, self._is_futile = None, None, False
        room = max(1 - seconds / (EASY * self.target_value), 0.0)
        self._broke *= math.exp(passed * room / FADE)
        if load >= self._met:
            self._met, self._room = load, room
        if load > self._broke:  # a higher load meets the target: the estimate was too low
            self._broke += BREAK_GAIN * (load * (1 + ROOM) - self._broke)

    def _take_broken(self, load: float, seconds: float, in_flight: float) -> None:
        """Learn from a percentile beyond the target."""
        if in_flight <= FEW:
            self._is_futile = True
            return
        high, low = self._at_high_load, self._at_low_load
        if high is None or load > high.load:
            self._at_high_load, self._at_low_load = _Broken(load, seconds), None
        elif load <= LESS * high.load and seconds < LONGEST:
            if low is None or load <= LESS * low.load:
                # Much less load again: the earlier low load becomes the high one.
                self._at_high_load, self._at_low_load = low or high, _Broken(load, seconds)
            else:
                self._at_low_load = _Broken(
                    low.load + SMOOTH * (load - low.load),
                    low.seconds + SMOOTH * (seconds - low.seconds),
                )
        self._is_futile = self._unloaded > self.target_value
        if not self._is_futile and load < self._broke:
            self._broke = load if math.isinf(self._broke) else self._broke + BREAK_GAIN * (load - self._broke)

    @property
    def _unloaded(self) -> float:
        """Return a lower bound, in seconds, of the percentile without load; 0 without readings at two loads.

        Latency is a convex function of load, so at no load it is above the line through two of its points.
        """
        high, low = self._at_high_load, self._at_low_load
        if high is None or low is None or high.load <= low.load:
            return 0.0
        slope = max(high.seconds - low.seconds, 0.0) / (high.load - low.load)
        return low.seconds - slope * low.load

    def see(self, percentile: Percentile | None) -> None:
        """Take the current percentile; an invalid number of seconds counts as not measured."""
        seconds = percentile.seconds if percentile is not None else None
        is_valid = seconds is None or 0 <= seconds < math.inf
        self._last = percentile if is_valid else None

    def metric_need(self, rate: float, replicas: Replicas) -> MetricNeed:
        """Return the replicas that meet the target at `rate` (work per second).

        `needed` is None, which holds the count, where more replicas would not help or no capacity is known.
        While the percentile is not measured, the need counts only if it is above the current count. With too
        few answers for a percentile, the need counts, and is 0 without a capacity.
        """
        name, percentile, capacity = self.metric.name, self._last, self.capacity
        count = 0
        if capacity is not None:
            count = math.ceil(rate / capacity - TOLERANCE)
        if percentile is None:
            return MetricNeed(name, count if count > replicas.desired else None, "not measured")
        value = percentile.seconds
        if value is None:
            return MetricNeed(name, count, "too few answers to tell")
        share = f"{self.metric.percentile:g} % of the answers"
        message = f"{share} take at most {value:.3g} s, {self.target_value:g} s wanted"
        if self._is_futile:
            return MetricNeed(
                name, None, f"{message}: more replicas do not make them faster, and the count is held", value
            )
        if capacity is None:
            return MetricNeed(name, None, message, value)
        return MetricNeed(name, count, f"{message}: {rate:.3g} per second at {capacity:.3g} each", value)

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "target": self.target_value,
            "met": self._met,
            "room": self._room,
            "broke": None if math.isinf(self._broke) else self._broke,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`; the state of another target is ignored."""
        if state.get("target") == self.target_value:
            self._met, self._room = float(state["met"]), float(state["room"])
            self._broke = math.inf if state["broke"] is None else float(state["broke"])


class LatencyTargets:
    """All metrics of the type Latency of one target, and the load of one replica over the last minute."""

    def __init__(self, metrics: Iterable[Metric], capacity: Capacity | None) -> None:
        prior = capacity.rate if capacity is not None else None
        self.targets = [LatencyTarget(metric, prior) for metric in metrics if metric.type == "Latency"]
        self._loads: deque[Load] = deque()
        """Readings of the last `WINDOW` seconds, the oldest first."""
        self._ready, self._since = 0, math.inf
        """Ready replicas, and the Unix seconds since which their number is the same."""

    def take(self, load: Load, ready: int) -> None:
        """Observe a reading of the load while `ready` replicas served."""
        if not self.targets:
            return
        if ready != self._ready or load.end < self._since:
            self._ready, self._since = ready, load.end
            self._loads.clear()
        self._loads.append(load)
        while load.end - self._loads[0].start > WINDOW and len(self._loads) > 1:
            self._loads.popleft()

    def learn(self, percentiles: Mapping[str, Percentile], now: float) -> None:
        """Learn from the percentiles of about the last minute, by metric name."""
        for target in self.targets:
            target.see(percentiles.get(target.metric.name))
        if not self._loads or self._ready <= 0 or self._loads[-1].end - self._since < SETTLED:
            return
        seconds = sum(load.seconds for load in self._loads)
        work = sum(load.work for load in self._loads)
        arrivals = sum(load.arrivals for load in self._loads)
        finished = sum(load.finished for load in self._loads)
        if seconds <= 0:
            return
        # While a backlog drains, replicas serve more work than arrives, and that work determines latency.
        served = finished * work / arrivals if arrivals > 0 else finished
        load_per_replica = max(work, served) / seconds / self._ready
        in_flight = sum(load.in_flight * load.seconds for load in self._loads) / seconds / self._ready
        for target in self.targets:
            target.learn(load_per_replica, in_flight, now)

    def metric_needs(self, rate: float, replicas: Replicas) -> list[MetricNeed]:
        """Return the needs of the targets at `rate` (work per second)."""
        return [target.metric_need(rate, replicas) for target in self.targets]

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {target.metric.name: target.state() for target in self.targets}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        for target in self.targets:
            if target.metric.name in state:
                target.restore(state[target.metric.name])
