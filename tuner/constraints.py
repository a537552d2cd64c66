"""The bound of a constraint and its measured value, as trials, search and report read them. Pure."""

from serving.resources.formats import duration
from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.trial import Estimate, Window


def bound_of(constraint: Constraint) -> float:
    """Return the bound of a constraint: in seconds, or as the share of an error rate.

    Raises:
        ValueError: `atMost` is neither a duration nor a percentage.
    """
    if constraint.at_most.endswith("%"):
        return float(constraint.at_most[:-1]) / 100
    return duration.seconds(constraint.at_most)


def measured_value(window: Window, metric: str, percentile: int) -> Estimate | None:
    """Return a window's value of a constraint's metric; None, which breaks the constraint, if it has none.

    A latency is in seconds, an error rate is a share. Latencies are those of the answered requests. A failed
    request counts as never answered: if more fail than lie above a percentile, that percentile is above every
    bound. The inter-token latency (`itl`) is exempt: its samples are gaps between tokens, not requests.
    """
    if metric == "errorRate":
        return window.error_rate
    # Rounded, as 100 * 0.07 is above 7, and then a share that equals the one above p93 would exceed it.
    if metric != "itl" and round(100 * window.error_rate.value, 9) > 100 - percentile:
        return None
    for latency in window.latencies:
        if (latency.metric, latency.percentile) == (metric, percentile):
            return Estimate(value=latency.value, low=latency.low, high=latency.high)
    return None
