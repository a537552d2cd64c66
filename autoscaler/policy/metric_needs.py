"""The need of each metric of a spec, in replicas: the highest need of several metrics counts. Pure.

Gateways count work in requests, so work per second and requests per second are the same here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.decision_values import MetricNeed
from autoscaler.observation import MOST_WORK, Observation, Replicas
from autoscaler.policy.config import Metric, PolicyConfig
from autoscaler.policy.latency import LatencyTargets
from autoscaler.policy.tokens import TokenRates

TOLERANCE = 0.1
"""Share of the target within which utilisation changes nothing, as with Kubernetes's autoscaler."""
MOST_GROWTH = 2.0
"""Largest need of a queue or of utilisation, in multiples of the ready replicas: both stay high until new
replicas are ready, however many are starting."""
LEARNED = frozenset({"Latency", "TokensPerSecond"})
"""Types whose need depends on a learned property of one replica."""
BY_CAPACITY = frozenset({"QPS", "Concurrency"})
"""Types that are sized by the capacity of a replica when they have no target."""


class MetricSizer:
    """The metrics of one target, with their learned state."""

    def __init__(self, config: PolicyConfig) -> None:
        self._metrics = config.metrics
        self.latency = LatencyTargets(config.metrics, config.capacity)
        self.tokens = TokenRates(config.metrics, config.capacity)

    @property
    def are_sufficient(self) -> bool:
        """Whether the metrics, if the spec has any, alone size the target; otherwise the capacity of a
        replica sizes it too.
        """
        return all(m.target_value is not None and m.type != "Latency" for m in self._metrics)

    def learn(self, observation: Observation) -> None:
        """Learn from the measured percentiles and engine metrics."""
        self.latency.learn(observation.percentiles, observation.now)
        self.tokens.learn(observation.engines, observation.load)

    def by_target_value(self, observation: Observation, rate: float, latency: float) -> list[MetricNeed]:
        """Return the needs of the metrics, without those that are sized by capacity.

        Args:
            observation: the current observation.
            rate: requests per second to be ready for.
            latency: seconds of a request that does not wait; 0 while unknown.
        """
        replicas = observation.replicas
        return [
            *needs_without_learning(self._metrics, observation.gauges, replicas, rate, latency),
            *self.latency.metric_needs(rate, replicas),
            *self.tokens.metric_needs(observation.engines, rate, replicas),
        ]

    def by_capacity(self, needed: int, message: str, rate: float) -> list[MetricNeed]:
        """Return the needs of the metrics that are sized by capacity; without any metric, of QPS.

        Args:
            needed: replicas by the capacity of a replica.
            message: reason of this need.
            rate: current requests per second, the reported value of the metrics.
        """
        sized = [m.name for m in self._metrics if m.target_value is None and m.type in BY_CAPACITY]
        return [MetricNeed(name, needed, message, rate) for name in (sized if self._metrics else ["QPS"])]

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {"latency": self.latency.state(), "tokens": self.tokens.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        self.latency.restore(state["latency"])
        self.tokens.restore(state["tokens"])


def needs_without_learning(
    metrics: Sequence[Metric], gauges: Mapping[str, float], replicas: Replicas, rate: float, latency: float
) -> list[MetricNeed]:
    """Return the needs of the metrics with a target and without learned state.

    Args:
        metrics: of the spec; those without a target are sized by capacity elsewhere.
        gauges: values by metric name, as in `Observation.gauges`.
        replicas: current replicas of the target.
        rate: requests per second to be ready for.
        latency: seconds of a request that does not wait; 0 while unknown.
    """
    return [
        _metric_need(metric, gauges, replicas, rate, latency)
        for metric in metrics
        if metric.target_value and metric.type not in LEARNED
    ]


def _metric_need(
    metric: Metric, gauges: Mapping[str, float], replicas: Replicas, rate: float, latency: float
) -> MetricNeed:
    target_value = metric.target_value or 1.0  # the caller passes only metrics with a target
    if metric.type == "QPS":
        return _rounded_need(
            metric, rate / target_value, f"{rate:.3g} requests/s at {target_value:g} each", rate
        )
    if metric.type == "Concurrency":
        if latency <= 0:
            return MetricNeed(metric.name, None, "the latency is not known yet")
        in_flight = rate * latency
        return _rounded_need(
            metric,
            in_flight / target_value,
            f"{in_flight:.3g} requests in flight at {target_value:g} each",
            in_flight,
        )
    value = gauges.get(metric.name)
    if value is None or not math.isfinite(value) or value < 0:
        return MetricNeed(metric.name, None, "not measured")
    ready = max(replicas.ready, 1)
    if metric.type == "Utilization":
        percent = 100 * value
        ratio = percent / target_value
        ratio = 1.0 if abs(ratio - 1) <= TOLERANCE else min(ratio, MOST_GROWTH)
        return _rounded_need(
            metric, ready * ratio, f"{percent:.3g} % used, {target_value:g} % wanted", percent
        )
    count = value / target_value
    if metric.type == "TokenQueueDepth":
        count = min(count, MOST_GROWTH * ready)
    return _rounded_need(metric, count, f"{value:.3g} at {target_value:g} each", value)


def _rounded_need(metric: Metric, count: float, message: str, value: float) -> MetricNeed:
    """Return the need of `count` replicas, rounded up except for an error of floating point."""
    return MetricNeed(metric.name, math.ceil(min(count, MOST_WORK) - 1e-9), message, value)
