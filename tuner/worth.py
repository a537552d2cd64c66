"""What a window is worth: the objective's value, with its interval, at the load of the window. Natural units.

The experiment's own words for the metrics are in `serving/resources/experiment.py`.
"""

import math
from collections.abc import Sequence

from serving.resources.experiment import Objective
from serving.resources.trial import Estimate, Window

HOUR = 3600.0
TINY = 1e-12
Z95 = 1.96
"""Standard deviations to either end of a 95 % interval."""


def objective(asked: Objective, window: Window, cost_per_hour: float, batch: int) -> Estimate | None:
    """Return the objective's value; None where it cannot be computed: nothing was answered, or what it needs has no price.

    Requests, and tokens, per second are of one replica; per cost they are for a unit of money.
    """
    metric = asked.objective_metric_name
    if metric == "costAtRate":
        return _at_rate(float(asked.rate or 0), window.throughput, batch, cost_per_hour)
    if metric == "latency":
        return _latency(window, asked.percentile)
    if metric == "cost":
        return Estimate(value=cost_per_hour, low=cost_per_hour, high=cost_per_hour)
    if metric.endswith("PerCost") and cost_per_hour <= 0:
        return None
    per = HOUR / cost_per_hour if metric.endswith("PerCost") else 1.0
    done = window.throughput
    each = window.tokens_per_second / max(done.value, TINY) if metric.startswith("tokens") else batch
    return _scaled(done, each * per)


def _scaled(of: Estimate, by: float) -> Estimate | None:
    if of.value * by <= 0:
        return None
    return Estimate(value=of.value * by, low=max(0.0, of.low) * by, high=of.high * by)


def _at_rate(rate: float, done: Estimate, batch: int, cost_per_hour: float) -> Estimate | None:
    if min(done.low, done.value) <= 0 or cost_per_hour <= 0:
        return None

    def cost(throughput: float) -> float:
        return math.ceil(rate / (throughput * batch)) * cost_per_hour

    return Estimate(value=cost(done.value), low=cost(done.high), high=cost(done.low))


def _latency(window: Window, percentile: int) -> Estimate | None:
    for found in window.latencies:
        if (found.metric, found.percentile) == ("latency", percentile):
            return Estimate(value=found.value, low=found.low, high=found.high)
    return None


def deviation(of: Estimate) -> float:
    """Return the standard deviation of the logarithm, from the 95 % interval; 0 where that cannot be told.

    The upper end of a percentile of few requests is far away, as nothing bounds it; the lower one then says more.
    """
    if not 0 < of.low <= of.value or of.high <= of.low:
        return 0.0
    return min(math.log(of.high / of.low) / 2, 2 * math.log(of.value / of.low)) / Z95


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of independent measurements with its interval; the arithmetic one where a value is not positive."""
    if len(estimates) == 1:
        return estimates[0]
    if any(end <= 0 for e in estimates for end in (e.value, e.low, e.high)):
        count = len(estimates)
        mean = sum(e.value for e in estimates) / count
        below = math.sqrt(sum((e.value - e.low) ** 2 for e in estimates)) / count
        above = math.sqrt(sum((e.high - e.value) ** 2 for e in estimates)) / count
        return Estimate(value=mean, low=mean - below, high=mean + above)
    mean = sum(math.log(e.value) for e in estimates) / len(estimates)
    spread = math.sqrt(sum(half_width(e) ** 2 for e in estimates)) / len(estimates)
    return Estimate(value=math.exp(mean), low=math.exp(mean - spread), high=math.exp(mean + spread))


def half_width(estimate: Estimate) -> float:
    """Return half of the interval's width, as a logarithm; 0 where it has no width that could be told."""
    if estimate.low <= 0 or estimate.high <= estimate.low:
        return 0.0
    return math.log(estimate.high / estimate.low) / 2
