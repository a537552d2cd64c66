"""Phrases of the report's sentences: regret, end and purpose of a trial, level of load."""

from typing import Final

from serving.pages import figures
from serving.resources.trial import Reason
from tuner.report.schema import Question, TrialRow

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


def missed(regret: float) -> str:
    """Return the expected regret, a share of the best spec's objective, as a phrase."""
    return f"expected to fall {figures.percent(regret)} short of the best spec that was not measured"


def ended(row: TrialRow) -> str:
    """Return why a trial ended, or its phase."""
    if row.reason:
        return REASONS[row.reason]
    return PHASES.get(row.phase, "is not over")


def ended_together(reason: Reason, count: int) -> str:
    """Return `1 trial was refused`, `3 trials were refused`."""
    words = REASONS[reason] if count == 1 else _SEVERAL.get(reason, REASONS[reason])
    return f"{figures.count(count, 'trial')} {words}"


def purpose(row: TrialRow) -> str:
    """Return the purpose of a trial."""
    return {"Explore": "search", "Confirm": "confirmation", "Baseline": "the spec that runs today"}[
        row.purpose
    ]


def level(question: Question, amount: float) -> str:
    """Return a level of load: `8 users`, `120 requests/s`."""
    if question.mode == "open":
        return f"{figures.number(amount)} requests/s"
    return figures.count(round(amount), "user")
