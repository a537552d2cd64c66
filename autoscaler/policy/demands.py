"""What each metric of a spec asks for, in replicas: several metrics compose by the most of them. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.observation import Replicas
from autoscaler.policy.config import Metric

TOLERANCE = 0.1
"""Of the target: utilisation that is nearer changes nothing, as with Kubernetes's autoscaler."""
MOST_GROWTH = 2.0
"""Times the ready replicas that a queue or utilisation asks for at most: both are high until new replicas are ready, however
many are on their way."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one metric asks for."""

    metric: str
    needed: int | None
    """Replicas; None: the metric was not measured, and so must not take replicas away."""
    message: str


def demands(
    metrics: Sequence[Metric], gauges: Mapping[str, float], replicas: Replicas, rate: float, latency: float
) -> list[Demand]:
    """Return what the metrics with a target ask for.

    Args:
        metrics: of the spec; those without a target go by capacity, which is not asked here.
        gauges: values by metric name.
        replicas: of the target now.
        rate: requests per second to be ready for.
        latency: seconds of a request that does not wait; 0 where it is not known.
    """
    return [_demand(metric, gauges, replicas, rate, latency) for metric in metrics if metric.target]


def _demand(
    metric: Metric, gauges: Mapping[str, float], replicas: Replicas, rate: float, latency: float
) -> Demand:
    target = metric.target or 1.0
    if metric.type == "QPS":
        return _of(metric, rate / target, f"{rate:.3g} requests/s at {target:g} each")
    if metric.type == "Concurrency":
        busy = rate * latency
        return _of(metric, busy / target, f"{busy:.3g} requests in flight at {target:g} each")
    value = gauges.get(metric.name)
    if metric.type == "Latency" or value is None or not math.isfinite(value) or value < 0:
        return Demand(metric.name, None, "not measured")
    ready = max(replicas.ready, 1)
    if metric.type == "Utilization":
        ratio = 100 * value / target
        ratio = 1.0 if abs(ratio - 1) <= TOLERANCE else min(ratio, MOST_GROWTH)
        return _of(metric, ready * ratio, f"{100 * value:.3g} % used, {target:g} % wanted")
    count = value / target
    if metric.type == "TokenQueueDepth":
        count = min(count, MOST_GROWTH * ready)
    return _of(metric, count, f"{value:.3g} at {target:g} each")


def _of(metric: Metric, count: float, message: str) -> Demand:
    return Demand(metric.name, math.ceil(count - 1e-9), message)
