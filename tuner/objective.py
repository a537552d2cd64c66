"""The objective's value at the load of a window, with its interval, in natural units.

`serving/resources/tuning/experiment.py` defines the metrics.
"""

import math

from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import Estimate, Window
from tuner import intervals

HOUR = 3600.0
"""Seconds."""
TINY = 1e-12
"""Replaces a throughput or a bound of 0 as a divisor, or in a logarithm."""


def objective_value(
    objective: Objective, window: Window, cost_per_hour: float, batch: int
) -> Estimate | None:
    """Return the objective's value; None without answers, or without a price that it needs.

    Requests and tokens are per second and replica, or per unit of money for metrics per cost.

    Args:
        objective: of the experiment.
        window: the measurements at one load; its throughput is in answers per second.
        cost_per_hour: of the replica; 0 if it is unknown.
        batch: items in one request: each item counts as a request of the objective.
    """
    metric = objective.objective_metric_name
    if metric == "costAtRate":
        return _at_rate(float(objective.rate or 0), window.throughput, batch, cost_per_hour)
    if metric == "latency":
        return _latency(window, objective.percentile)
    if metric.endswith(("cost", "PerCost")) and cost_per_hour <= 0:
        return None
    if metric == "cost":
        if window.throughput.value <= 0:
            return None
        return Estimate(value=cost_per_hour, low=cost_per_hour, high=cost_per_hour)
    # The seconds that a unit of money pays for; the other metrics are per second.
    seconds = HOUR / cost_per_hour if metric.endswith("PerCost") else 1.0
    throughput = window.throughput
    if metric.startswith("tokens"):
        units_per_answer = window.tokens_per_second / max(throughput.value, TINY)
    else:
        units_per_answer = batch
    return _scaled(throughput, units_per_answer * seconds)


def _scaled(estimate: Estimate, factor: float) -> Estimate | None:
    if estimate.value * factor <= 0:
        return None
    return Estimate(
        value=estimate.value * factor, low=max(0.0, estimate.low) * factor, high=estimate.high * factor
    )


def _at_rate(rate: float, throughput: Estimate, batch: int, cost_per_hour: float) -> Estimate | None:
    """Return the cost of an hour of the whole replicas that serve `rate` items per second together."""
    if throughput.value <= 0 or cost_per_hour <= 0:
        return None
    # Without a lower end, the interval is the widest that `intervals` accepts.
    lowest = throughput.low if throughput.low > 0 else throughput.value * math.exp(-intervals.WIDEST)

    def cost(answers_per_second: float) -> float:
        replicas = math.ceil(rate / (answers_per_second * batch))
        return replicas * cost_per_hour

    return Estimate(value=cost(throughput.value), low=cost(throughput.high), high=cost(lowest))


def _latency(window: Window, percentile: int) -> Estimate | None:
    for latency in window.latencies:
        if (latency.metric, latency.percentile) == ("latency", percentile):
            return Estimate(value=latency.value, low=latency.low, high=latency.high)
    return None
