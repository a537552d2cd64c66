"""The notation of specs, constraints and intervals in status, report and command line. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from serving.report_pages import formatting
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import Estimate

METRICS: Final = {
    "latency": "latency",
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "errorRate": "error rate",
}


class ConstrainedMetric(Protocol):
    """The metric and percentile of a constraint, in an experiment or a report."""

    @property
    def metric(self) -> str:
        """Key of METRICS."""

    @property
    def percentile(self) -> int:
        """Percentile of a latency."""


def spec(settings: Sequence[Setting]) -> str:
    """Return `cpu=500m memory=512Mi`, or `today's spec` without settings.

    A name that occurs in two categories is prefixed with its category.
    """
    names = [setting.name for setting in settings]
    words = [
        f"{s.category}/{s.name}={s.value}" if names.count(s.name) > 1 else f"{s.name}={s.value}"
        for s in settings
    ]
    return " ".join(words) or "today's spec"


def metric(of: ConstrainedMetric) -> str:
    """Return `p99 latency`, or `error rate`."""
    name = METRICS[of.metric]
    return name if of.metric == "errorRate" else f"p{of.percentile} {name}"


def writer(of: ConstrainedMetric) -> Callable[[float], str]:
    """Return the function that writes values of this metric: seconds, or the share of an error rate."""
    return formatting.percent if of.metric == "errorRate" else formatting.duration


def constraint(of: ConstrainedMetric, bound: float) -> str:
    """Return `p99 latency <= 100 ms`; the bound is in seconds, or a share."""
    return f"{metric(of)} <= {writer(of)(bound)}"


def interval(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Return `12.3 ms (11.9 ms to 12.8 ms)`, or `12.3 ms (11.9 ms or more)` without an upper end.

    If both ends have the same text, the interval is omitted.
    """
    low, high = write(estimate.low), write(estimate.high)
    if math.isinf(estimate.high):
        return f"{write(estimate.value)} ({low} or more)"
    return write(estimate.value) if low == high else f"{write(estimate.value)} ({low} to {high})"
