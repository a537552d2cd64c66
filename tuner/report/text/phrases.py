"""Phrases for the regret, the end and purpose of a trial, and the level of load."""

from typing import Final

from serving.pages import figures
from serving.resources.trial import Reason
from tuner.report.schema import Question, TrialRow

PRICES: Final = {"cpu": "a core", "memory": "a GiB of memory", "gpu": "a GPU"}
REASONS: Final = {
    "Measured": "measured to the end",
    "CannotBeatBest": "stopped early: it could not beat the best so far",
    "BreaksConstraint": "breaks a constraint at every measured load",
    "OutOfMemory": "ran out of memory",
    "Crashed": "crashed",
    "NotReady": "was not ready in time",
    "Refused": "was refused",
    "TimedOut": "took too long",
    "LoadFailed": "has no result: the load could not be generated",
    "Interrupted": "has no result: it was interrupted",
}
_SEVERAL: Final = {
    "CannotBeatBest": "stopped early: they could not beat the best so far",
    "BreaksConstraint": "break a constraint at every measured load",
    "NotReady": "were not ready in time",
    "Refused": "were refused",
    "LoadFailed": "have no result: the load could not be generated",
    "Interrupted": "have no result: they were interrupted",
}
PHASES: Final = {
    "Pending": "is pending",
    "Starting": "is starting",
    "WarmingUp": "is warming up",
    "Measuring": "is being measured",
}


def expected_regret(regret: float) -> str:
    """Return the expected regret, a share of the best spec's objective, as a phrase."""
    return f"expected to fall {figures.percent(regret)} short of the best spec that was not measured"


def ended(row: TrialRow) -> str:
    """Return the end of a trial, or its phase."""
    if row.reason:
        return REASONS[row.reason]
    return PHASES.get(row.phase, "is running")


def ended_together(reason: Reason, count: int) -> str:
    """Return `1 trial was refused`, `3 trials were refused`."""
    words = REASONS[reason] if count == 1 else _SEVERAL.get(reason, REASONS[reason])
    return f"{figures.count(count, 'trial')} {words}"


def purpose(row: TrialRow) -> str:
    """Return the purpose of a trial."""
    return {"Explore": "search", "Confirm": "confirmation", "Baseline": "today's spec"}[row.purpose]


def level(question: Question, amount: float) -> str:
    """Return a level of load: `8 users`, `120 requests/s`."""
    if question.mode == "open":
        return f"{figures.number(amount)} requests/s"
    return figures.count(round(amount), "user")
