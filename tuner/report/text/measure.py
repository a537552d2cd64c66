"""The presentation of the objective to readers: requests or tokens per money become money per million."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from serving.report_pages import formatting
from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import Estimate
from tuner.report.schema import Question

MILLION = 1e6


@dataclass(frozen=True)
class ObjectiveMeasure:
    """The presentation of an objective."""

    label: str
    """Label of an axis or column: `cost of a million requests`."""
    sentence: str
    """Sentence with `{}` for the value: `a million requests cost {}`."""
    write: Callable[[float], str]
    """Formats a shown value."""
    less_is_better: bool
    """Of the shown value."""
    inverted: bool = False
    """Whether the shown value is a million divided by the objective's value."""

    def shown(self, value: float) -> float | None:
        """Return the shown value for a value of the objective; None if it is undefined."""
        if not self.inverted:
            return value
        return MILLION / value if value > 0 else None

    def estimate(self, interval: Estimate) -> Estimate | None:
        """Return the shown interval, with an infinite end if it is open; None if the value is undefined."""
        value, *ends = (self.shown(each) for each in (interval.value, interval.low, interval.high))
        if value is None:
            return None
        low, high = sorted(math.inf if end is None else end for end in ends)
        return Estimate(value=value, low=low, high=high)


def of(question: Question) -> ObjectiveMeasure:
    """Return the presentation of the objective of a report's question."""
    return _measure(question.metric, question.direction, question.rate, question.percentile)


def of_objective(objective: Objective) -> ObjectiveMeasure:
    """Return the presentation of an experiment's objective."""
    rate = None if objective.rate is None else float(objective.rate)
    return _measure(objective.objective_metric_name, objective.type, rate, objective.percentile)


def _measure(metric: str, direction: str, rate: float | None, percentile: int) -> ObjectiveMeasure:
    usual = _usual(metric, rate, percentile)
    is_minimized = direction == "minimize"
    return replace(usual, less_is_better=not is_minimized if usual.inverted else is_minimized)


def _usual(metric: str, rate: float | None, percentile: int) -> ObjectiveMeasure:
    """Return the presentation of a metric that is optimised in its usual direction."""
    match metric:
        case "throughputPerCost" | "tokensPerCost":
            return _per("request" if metric == "throughputPerCost" else "token")
        case "costAtRate":
            load = f"{formatting.number(rate or 0)} requests/s"
            return _money(f"cost per hour of {load}", f"the replicas for {load} cost {{}} per hour")
        case "cost":
            return _money("cost per hour of a replica", "a replica costs {} per hour")
        case "latency":
            label = f"p{percentile} latency"
            return ObjectiveMeasure(label, f"the {label} is {{}}", formatting.duration, less_is_better=True)
        case "tokensPerSecond":
            return ObjectiveMeasure(
                "tokens per second", "a replica makes {} tokens/s", formatting.number, less_is_better=False
            )
        case _:
            return ObjectiveMeasure(
                "requests per second",
                "a replica answers {} requests/s",
                formatting.number,
                less_is_better=False,
            )


def _money(label: str, sentence: str) -> ObjectiveMeasure:
    return ObjectiveMeasure(label, sentence, formatting.number, less_is_better=True)


def _per(unit: str) -> ObjectiveMeasure:
    label, sentence = f"cost of a million {unit}s", f"a million {unit}s cost {{}}"
    return ObjectiveMeasure(label, sentence, formatting.number, less_is_better=True, inverted=True)
