"""The objective's value at the load of a window, with its interval, in natural units.

`serving/resources/tuning/experiment.py` defines the metrics.
"""

import math

from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import Estimate, Window
from tuner import intervals

HOUR = 3600.0
TINY = 1e-12


def objective_value(
    objective: Objective, window: Window, cost_per_hour: float, batch: int
) -> Estimate | None:
    """Return the objective's value; None without answers, or without a price that it needs.

    Requests and tokens are per second and replica, or per unit of money for metrics per cost.
    """
    metric = objective.objective_metric_name
    if metric == "costAtRate":
        return _at_rate(float(objective.rate or 0), window.throughput, batch, cost_per_hour)
    if metric == "latency":
        return _latency(window, objective.percentile)
    if metric.endswith(("cost", "PerCost")) and cost_per_hour <= 0:
        return None
    if metric == "cost":
        return Estimate(value=cost_per_hour, low=cost_per_hour, high=cost_per_hour)
    per = HOUR / cost_per_hour if metric.endswith("PerCost") else 1.0
    throughput = window.throughput
    each = window.tokens_per_second / max(throughput.value, TINY) if metric.startswith("tokens") else batch
    return _scaled(throughput, each * per)


def _scaled(estimate: Estimate, factor: float) -> Estimate | None:
    if estimate.value * factor <= 0:
        return None
    return Estimate(
        value=estimate.value * factor, low=max(0.0, estimate.low) * factor, high=estimate.high * factor
    )


def _at_rate(rate: float, throughput: Estimate, batch: int, cost_per_hour: float) -> Estimate | None:
    if throughput.value <= 0 or cost_per_hour <= 0:
        return None
    least = throughput.low if throughput.low > 0 else throughput.value * math.exp(-intervals.WIDEST)

    def cost(value: float) -> float:
        return math.ceil(rate / (value * batch)) * cost_per_hour

    return Estimate(value=cost(throughput.value), low=cost(throughput.high), high=cost(least))


def _latency(window: Window, percentile: int) -> Estimate | None:
    for latency in window.latencies:
        if (latency.metric, latency.percentile) == ("latency", percentile):
            return Estimate(value=latency.value, low=latency.low, high=latency.high)
    return None
