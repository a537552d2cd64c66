"""What a constraint allows, and what a window says of it: the one reading that trials, the search and the report share. Pure."""

from serving.resources import duration
from serving.resources.experiment import Constraint
from serving.resources.trial import Estimate, Window


def bound_of(constraint: Constraint) -> float:
    """Return the most that a constraint allows: seconds, or the share of an error rate.

    Raises:
        ValueError: neither a duration nor a percentage.
    """
    if constraint.at_most.endswith("%"):
        return float(constraint.at_most[:-1]) / 100
    return duration.seconds(constraint.at_most)


def measured_value(window: Window, metric: str, percentile: int) -> Estimate | None:
    """Return what a window says of a constraint's metric; None where that is no number, and then the constraint is broken.

    Latencies are those of the requests that were answered. One that failed was never answered, so where more failed than are above a
    percentile, that percentile is above every limit.
    """
    if metric == "errorRate":
        return window.error_rate
    if metric != "itl" and window.error_rate.value > 1 - percentile / 100:
        return None
    for latency in window.latencies:
        if (latency.metric, latency.percentile) == (metric, percentile):
            return Estimate(value=latency.value, low=latency.low, high=latency.high)
    return None
