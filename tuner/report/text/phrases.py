"""Phrases for prices, for the choice and its doubts, for the end and purpose of a trial, and for loads."""

from typing import Final

from serving.report_pages import formatting
from serving.resources.tuning.experiment_status import Rule
from serving.resources.tuning.trial import Reason
from tuner.report.schema import Question, TrialRow
from tuner.settled import Doubt

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
"""The entries of REASONS that have other words for several trials."""
PHASES: Final = {
    "Pending": "is pending",
    "Starting": "is starting",
    "WarmingUp": "is warming up",
    "Measuring": "is being measured",
}


def expected_regret(regret: float) -> str:
    """Return the expected regret, a share of the best spec's objective, as a phrase."""
    return f"expected to fall {formatting.percent(regret)} short of the best spec that was not measured"


def unsettled(doubt: Doubt) -> str:
    """Return `not settled after 6 trials`, capitalized."""
    return f"Not settled after {formatting.count(doubt.trials, 'trial')}"


def unsettled_reasons(doubt: Doubt) -> str:
    """Return why a recommendation is not settled, and a remedy: `expected regret 46 %; run 9 more trials`."""
    words = [] if doubt.regret is None else [f"expected regret {formatting.percent(doubt.regret)}"]
    if doubt.breaks is not None:
        words.append(f"its next measurement breaks a constraint with a probability of {chance(doubt.breaks)}")
    if doubt.more:
        words.append(f"run {formatting.count(doubt.more, 'more trial')}")
    return "; ".join(words)


def chance(probability: float) -> str:
    """Return a probability in whole per cents, as the choice compares them: `62 %`, `over 99 %`."""
    percent = round(100 * probability)
    if percent in (0, 100):
        return "under 1\u00a0%" if percent == 0 else "over 99\u00a0%"
    return f"{percent}\u00a0%"


_EXPECTED: Final = "so the better objective decided, as expected from all trials."
_RULES: Final = {
    "OnlySafe": "Only the recommended spec keeps the constraints with the allowance for noise, which"
    " decided.",
    "BetterObjective": f"Both keep the constraints with the allowance for noise, {_EXPECTED}",
    "EqualObjective": "Both keep the constraints with the allowance for noise, and their objectives are equal"
    " within the precision of a trial, so the higher probability decided.",
    "HigherProbability": "Neither keeps the constraints with the allowance for noise, so the higher"
    " probability decided.",
    "EqualProbability": "Neither keeps the constraints with the allowance for noise, and the probabilities"
    f" are equal, {_EXPECTED}",
}


def rule(rule: Rule, *, constrained: bool) -> str:
    """Return why the recommended spec was chosen and not another; without constraints by its objective."""
    return _RULES[rule] if constrained else "The better objective decided, as expected from all trials."


def ended(row: TrialRow) -> str:
    """Return the end of a trial, or its phase."""
    if row.reason:
        return REASONS[row.reason]
    return PHASES.get(row.phase, "is running")


def ended_together(reason: Reason, count: int) -> str:
    """Return `1 trial was refused`, `3 trials were refused`."""
    words = REASONS[reason] if count == 1 else _SEVERAL.get(reason, REASONS[reason])
    return f"{formatting.count(count, 'trial')} {words}"


def purpose(row: TrialRow) -> str:
    """Return the purpose of a trial."""
    return {"Explore": "search", "Confirm": "confirmation", "Baseline": "today's spec"}[row.purpose]


def level(question: Question, amount: float) -> str:
    """Return a level of load: `8 users`, `120 requests/s`."""
    if question.mode == "open":
        return f"{formatting.number(amount)} requests/s"
    return formatting.count(round(amount), "user")
