"""Words for the pieces of a report: a spec, a constraint, an interval, why a trial ended. Sentences are made elsewhere."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from serving.pages import figures
from serving.resources.experiment import Setting
from serving.resources.trial import Estimate, Reason
from tuner.report.schema import Bound, Question, TrialRow

METRICS: Final = {
    "latency": "latency",
    "ttft": "time to the first token",
    "itl": "time between tokens",
    "errorRate": "share of failed requests",
}
PRICES: Final = {"cpu": "a core", "memory": "a GiB of memory", "gpu": "a GPU"}
REASONS: Final = {
    "Measured": "measured to the end",
    "CannotBeatBest": "stopped early: it could not be better than the best so far",
    "BreaksConstraint": "breaks a constraint at every load that was tried",
    "OutOfMemory": "ran out of memory",
    "Crashed": "crashed",
    "NotReady": "was not ready in time",
    "Refused": "was refused",
    "TimedOut": "took too long",
    "LoadFailed": "says nothing: the load could not be made",
    "Interrupted": "says nothing: it was interrupted",
}
_SEVERAL: Final = {
    "CannotBeatBest": "stopped early: they could not be better than the best so far",
    "BreaksConstraint": "break a constraint at every load that was tried",
    "NotReady": "were not ready in time",
    "Refused": "were refused",
    "LoadFailed": "say nothing: the load could not be made",
    "Interrupted": "say nothing: they were interrupted",
}
PHASES: Final = {
    "Pending": "waits",
    "Starting": "is being started",
    "WarmingUp": "is being warmed up",
    "Measuring": "is being measured",
}


def spec(settings: Sequence[Setting]) -> str:
    """Return `cpu 2, memory 1Gi, batchSize 8`; a name that two categories have is told by its category."""
    names = [setting.name for setting in settings]
    words = [
        f"{s.category}/{s.name} {s.value}" if names.count(s.name) > 1 else f"{s.name} {s.value}"
        for s in settings
    ]
    return ", ".join(words) or "the spec as it is"


def metric(bound: Bound) -> str:
    """Return `p99 latency`, or `share of failed requests`."""
    return (
        METRICS[bound.metric]
        if bound.metric == "errorRate"
        else f"p{bound.percentile} {METRICS[bound.metric]}"
    )


def value(bound: Bound) -> Callable[[float], str]:
    """Return what writes values of this constraint's metric."""
    return figures.percent if bound.metric == "errorRate" else figures.duration


def constraint(bound: Bound) -> str:
    """Return `p99 latency at most 100 ms`."""
    return f"{metric(bound)} at most {value(bound)(bound.bound)}"


def interval(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Return `12.3 ms (11.9 ms to 12.8 ms)`, or `12.3 ms (11.9 ms or more)` where nothing bounds it.

    An interval without width, or that cannot be told apart, is left out.
    """
    low, high = write(estimate.low), write(estimate.high)
    if math.isinf(estimate.high):
        return f"{write(estimate.value)} ({low} or more)"
    return write(estimate.value) if low == high else f"{write(estimate.value)} ({low} to {high})"


def missed(regret: float) -> str:
    """Return what stopping now is expected to cost: a share of what the best spec would give, 0 to 1."""
    return f"expected to fall {figures.percent(regret)} short of the best spec that was not measured"


def ended(row: TrialRow) -> str:
    """Return why a trial ended, or what it is doing."""
    if row.reason:
        return REASONS[row.reason]
    return PHASES.get(row.phase, "is not over")


def ended_together(reason: Reason, count: int) -> str:
    """Return `1 trial was refused`, `3 trials were refused`."""
    words = REASONS[reason] if count == 1 else _SEVERAL.get(reason, REASONS[reason])
    return f"{figures.count(count, 'trial')} {words}"


def purpose(row: TrialRow) -> str:
    """Return why a trial was made."""
    return {"Explore": "search", "Confirm": "confirmation", "Baseline": "the spec that runs today"}[
        row.purpose
    ]


def level(question: Question, amount: float) -> str:
    """Return a level of load: `8 users`, `120 requests/s`."""
    if question.mode == "open":
        return f"{figures.number(amount)} requests/s"
    return figures.count(round(amount), "user")
