"""What the activator tells Prometheus: how many requests wait and for how long, what was refused, and what wakes took."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from a forked replica's phases to the deadline of a request that waits for a large model."""


class ActivatorMetrics:
    """One registry per activator."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        """Args: waiting: how many requests wait now."""
        self.registry = CollectorRegistry()
        held = Gauge("slipway_activator_held_requests", "Requests that wait now.", registry=self.registry)
        held.set_function(waiting)
        self._waits = Histogram(
            "slipway_activator_wait_seconds",
            "From a request's arrival to the beginning of its answer; its count is of those that were answered.",
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._refused = Counter(
            "slipway_activator_refused_requests",
            "Requests that got an error of the activator's own.",
            ["reason"],
            registry=self.registry,
        )
        self._wakes = Histogram(
            "slipway_wake_phase_seconds",
            "Of the first request at zero, from its arrival to its release, by phase; a wake's phases add up to it.",
            ["namespace", "autoscaler", "phase"],
            registry=self.registry,
            buckets=BUCKETS,
        )

    def waited(self, seconds: float) -> None:
        """Count a request that was answered."""
        self._waits.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count one that was not."""
        self._refused.labels(reason).inc()

    def woken(self, namespace: str, autoscaler: str, phases: Iterable[tuple[str, float]]) -> None:
        """Count a wake."""
        for name, seconds in phases:
            self._wakes.labels(namespace, autoscaler, name).observe(max(seconds, 0.0))
