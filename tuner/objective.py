"""What a window is worth: the objective's value, with its interval, at the load of the window. Natural units.

The experiment's own words for the metrics are in `serving/resources/experiment.py`.
"""

import math

from serving.resources.experiment import Objective
from serving.resources.trial import Estimate, Window
from tuner import intervals

HOUR = 3600.0
TINY = 1e-12


def objective_value(asked: Objective, window: Window, cost_per_hour: float, batch: int) -> Estimate | None:
    """Return the objective's value; None where it cannot be computed: nothing was answered, or what it needs has no price.

    Requests, and tokens, per second are of one replica; per cost they are for a unit of money.
    """
    metric = asked.objective_metric_name
    if metric == "costAtRate":
        return _at_rate(float(asked.rate or 0), window.throughput, batch, cost_per_hour)
    if metric == "latency":
        return _latency(window, asked.percentile)
    if metric.endswith(("cost", "PerCost")) and cost_per_hour <= 0:
        return None
    if metric == "cost":
        return Estimate(value=cost_per_hour, low=cost_per_hour, high=cost_per_hour)
    per = HOUR / cost_per_hour if metric.endswith("PerCost") else 1.0
    done = window.throughput
    each = window.tokens_per_second / max(done.value, TINY) if metric.startswith("tokens") else batch
    return _scaled(done, each * per)


def _scaled(of: Estimate, by: float) -> Estimate | None:
    if of.value * by <= 0:
        return None
    return Estimate(value=of.value * by, low=max(0.0, of.low) * by, high=of.high * by)


def _at_rate(rate: float, done: Estimate, batch: int, cost_per_hour: float) -> Estimate | None:
    if done.value <= 0 or cost_per_hour <= 0:
        return None
    least = done.low if done.low > 0 else done.value * math.exp(-intervals.WIDEST)

    def cost(throughput: float) -> float:
        return math.ceil(rate / (throughput * batch)) * cost_per_hour

    return Estimate(value=cost(done.value), low=cost(done.high), high=cost(least))


def _latency(window: Window, percentile: int) -> Estimate | None:
    for found in window.latencies:
        if (found.metric, found.percentile) == ("latency", percentile):
            return Estimate(value=found.value, low=found.low, high=found.high)
    return None
