"""Knative's autoscaler (KPA) on concurrency: a stable and a panic window, and zero behind the activator.

Source: knative/serving@98e5ef9 `pkg/autoscaler/scaling/autoscaler.go` (Scale),
`pkg/reconciler/autoscaling/kpa/scaler.go` (handleScaleToZero), `pkg/autoscaler/metrics/collector.go`, and the
defaults of `pkg/autoscaler/config/config.go`.
"""

import math
from dataclasses import dataclass

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import TARGET, ReadingWindow, requests_in_service, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

TARGET_MIN = 0.01
"""Least target of requests in flight per replica."""


@dataclass(frozen=True, slots=True)
class KpaConfig:
    """Names and defaults of the ConfigMap `config-autoscaler`."""

    tick: float = 2.0
    """Seconds between decisions."""
    stable_window: float = 60.0
    """Seconds of the window of the mean concurrency."""
    panic_share: float = 0.1
    """Length of the panic window, as a share of the stable window."""
    panic_threshold: float = 2.0
    """Replicas for the panic window, as a multiple of the ready replicas, from which on there is panic."""
    max_scale_up: float = 1000.0
    """Most replicas of a decision, as a multiple of the ready replicas."""
    max_scale_down: float = 2.0
    """Fewest replicas of a decision: the ready replicas divided by this number."""
    target: float = TARGET
    """Requests in flight per replica, as a share of its concurrency."""
    grace: float = 30.0
    """Seconds for which the activator must be in the request path before zero."""
    retention: float = 0.0
    """Seconds for which the last replica stays after the decision for zero."""
    burst_capacity: float = 211.0
    """Free slots, after the load of the panic window, from which on the activator leaves the request path."""


KPA_TUNED = KpaConfig(stable_window=300.0, retention=900.0)
"""The usual setting for models: a long window, and a last replica that stays 15 minutes."""


class Kpa:
    """KPA's decisions, with its stable window, panic window and scale to zero."""

    def __init__(self, inputs: PolicyInputs, config: KpaConfig | None = None) -> None:
        self._inputs = inputs
        self._config = config or KpaConfig()
        self.interval = self._config.tick
        self._stable = ReadingWindow(self._config.stable_window)
        self._panic = ReadingWindow(self._config.stable_window * self._config.panic_share)
        self._target = max(inputs.capacity.concurrency * self._config.target, TARGET_MIN)
        self._panic_since: float | None = None
        """Time of the last decision over the panic threshold; None: no panic."""
        self._max_panic_replicas = 0
        """In panic the count does not fall below this one."""
        self._active_since: float | None = None
        """Since when Knative's PodAutoscaler is Active: the target has ready replicas, and is not idle."""
        self._idle_since: float | None = None
        """Since when zero is asked for after a stable window of activity."""
        self._in_path_since: float | None = None
        """Since when the activator is in the request path."""
        self._begun = False

    def decide(self, observation: Observation) -> Decision:
        """Return the count of Knative's `Scale`, after the rules of scale to zero."""
        now, ready, load = observation.now, observation.replicas.ready, observation.load
        if not self._begun:
            self._begin(now, ready)
        if load is not None:
            self._add(load)
        end = self._stable.end
        if end is None or now - end > self._config.stable_window:
            return within_bounds(self._inputs, observation.replicas.desired, "NoData")
        count = self._scale(now, ready)
        reason = "Stable" if self._panic_since is None else "Panic"
        self._update_activator_path(now, ready)
        bounded = min(max(count, self._inputs.min_replicas), self._inputs.max_replicas)
        if ready and self._active_since is None and self._idle_since is None:
            self._active_since = now
        if bounded == 0:
            return self._to_zero(now, observation.replicas.desired, ready)
        self._idle_since = None
        return within_bounds(self._inputs, count, reason)

    def _begin(self, now: float, ready: int) -> None:
        """Begin in panic if more than one replica is ready, as Knative's decider does: it has no data yet."""
        self._begun = True
        if ready > 1:
            self._panic_since, self._max_panic_replicas = now, ready

    def _add(self, load: Load) -> None:
        concurrency = requests_in_service(load)
        self._stable.add(load.end, load.seconds, concurrency)
        self._panic.add(load.end, load.seconds, concurrency)

    def _scale(self, now: float, ready: int) -> int:
        """Return the replicas for the stable window, and in panic at least those for the panic window."""
        config, at_least_one = self._config, max(ready, 1)
        most = math.ceil(config.max_scale_up * at_least_one)
        least = math.floor(at_least_one / config.max_scale_down)
        for_stable = math.ceil(self._stable.mean() / self._target)
        for_panic = math.ceil(self._panic.mean() / self._target)
        if for_panic / at_least_one >= config.panic_threshold:
            self._panic_since = now
        elif self._panic_since is not None and self._panic_since + config.stable_window < now:
            self._panic_since, self._max_panic_replicas = None, 0
        stable = min(max(for_stable, least), most)
        if self._panic_since is None:
            return stable
        self._max_panic_replicas = max(self._max_panic_replicas, stable, min(max(for_panic, least), most))
        return self._max_panic_replicas

    def _update_activator_path(self, now: float, ready: int) -> None:
        """Keep the activator in the request path while Knative's excess burst capacity is negative."""
        slots = ready * self._inputs.capacity.concurrency
        if slots - self._config.burst_capacity - self._panic.mean() >= 0:
            self._in_path_since = None
        elif self._in_path_since is None:
            self._in_path_since = now

    def _to_zero(self, now: float, desired: int, ready: int) -> Decision:
        """Return the decision when zero is asked for.

        The last replica is removed once the target was active for a stable window, then idle for the
        retention, and idle or with the activator in the path for the grace.
        """
        if desired == 0:
            self._active_since = self._idle_since = None
            return within_bounds(self._inputs, 0, "AtZero")
        if ready == 0:
            return within_bounds(self._inputs, desired, "Activating")
        if self._active_since is not None and now - self._active_since < self._config.stable_window:
            return within_bounds(self._inputs, 1, "StillActive")
        if self._idle_since is None:
            self._active_since, self._idle_since = None, now
        idle = now - self._idle_since
        in_path = now - self._in_path_since if self._in_path_since is not None else 0.0
        if idle >= self._config.retention and max(idle, in_path) >= self._config.grace:
            return within_bounds(self._inputs, 0, "ScaledToZero")
        return within_bounds(self._inputs, desired, "Retained")
