"""The answer of a report: the recommended spec compared with today's and with others, or the obstacle.

The search has made the recommendation, which is in the experiment's status; this module compares it.
"""

import math
from collections.abc import Mapping

from serving.resources.tuning.experiment_status import Recommendation
from tuner import settled
from tuner.observation import CAUSES, UNINFORMATIVE
from tuner.report import evidence as ev
from tuner.report.evidence import Evidence
from tuner.report.schema import Alternative, Answer, Choice, Obstacle, Reach
from tuner.settled import Doubt
from tuner.trial_record import SpecKey, TrialRecord

_UNCOMPUTABLE = "the objective could not be computed from any measurement"
"""The specs ran but gave nothing to measure, for example no tokens."""


def answer(evidence: Evidence) -> Answer:
    """Return the spec to run, compared with today's and with the runner-up."""
    status = evidence.status
    message = next((c.message for c in status.conditions if c.type == "Recommended"), "")
    if status.phase == "Failed":
        return _without_recommendation(evidence, message)
    spec = status.recommendation or status.best
    rows = [] if spec is None else _rows_of(evidence, spec.trial)
    if spec is None or not rows:
        return Answer(kind="Unfinished", current=today(evidence), message=message)
    chosen = ev.choice(evidence, rows)
    current = today(evidence)
    second = runner_up(evidence, chosen)
    return Answer(
        kind="Recommended" if status.recommendation is not None else "Unfinished",
        choice=chosen,
        trial=spec.trial,
        probability=spec.probability,
        doubt=_why_unsettled(evidence),
        alternative=_alternative(evidence, spec),
        current=current,
        current_cost_per_hour=spec.current_cost_per_hour,
        runner_up=second,
        against_current=ev.compared(evidence, chosen, current) if current else None,
        against_runner_up=ev.compared(evidence, chosen, second) if second else None,
        message=message,
    )


def _why_unsettled(evidence: Evidence) -> Doubt | None:
    """Return why the recommendation is not settled; None if it is, or there is none yet."""
    status = evidence.status
    if status.recommendation is None:
        return None
    return settled.why_unsettled(
        trials=status.trials.total,
        specs=evidence.space.size,
        regret=status.expected_regret,
        probability=status.recommendation.probability,
    )


def _alternative(evidence: Evidence, spec: Recommendation) -> Alternative | None:
    """Return the other spec of the same price that the search compared, with its measurements."""
    other = spec.alternative
    rows = [] if other is None else _rows_of(evidence, other.trial)
    if other is None or not rows:
        return None
    return Alternative(choice=ev.choice(evidence, rows), probability=other.probability, rule=other.rule)


def _rows_of(evidence: Evidence, trial: str) -> list[TrialRecord]:
    """Return the complete trials of the spec of the named trial, else its trials that were stopped early."""
    key = next((row.key for row in evidence.rows if row.name == trial), None)
    if key is None:
        return []
    return evidence.specs().get(key) or [row for row in evidence.rows if row.key == key and row.objective]


def today(evidence: Evidence) -> Choice | None:
    """Return today's spec from its complete trials, else from its last Baseline trial with a result.

    None if no Baseline trial has a result. Its cost may be unknown, and then its objective, too.
    """
    baselines = [row for row in evidence.rows if row.spec.purpose == "Baseline" and row.status.result]
    if not baselines:
        return None
    complete = evidence.specs().get(baselines[-1].key)
    return ev.choice(evidence, complete or baselines[-1:])


def candidates(evidence: Evidence) -> dict[SpecKey, Choice]:
    """Return the completely measured specs that meet every constraint."""
    choices = {key: ev.choice(evidence, rows) for key, rows in runnable(evidence).items()}
    return {key: choice for key, choice in choices.items() if ev.allowed(evidence, choice)}


def runnable(evidence: Evidence) -> dict[SpecKey, list[TrialRecord]]:
    """Return the complete trials of each spec in the space of which no trial failed to run."""
    failed = {row.key for row in evidence.rows if row.status.reason in CAUSES}
    return {
        key: rows for key, rows in evidence.specs().items() if rows[0].index is not None and key not in failed
    }


def runner_up(evidence: Evidence, chosen: Choice) -> Choice | None:
    """Return the best candidate but the chosen spec, among the confirmed ones if any; None without one."""
    others = {k: c for k, c in candidates(evidence).items() if not ev.same(c.settings, chosen.settings)}
    confirmed_keys = {row.key for row in evidence.rows if row.spec.purpose == "Confirm"}
    confirmed = {key: choice for key, choice in others.items() if key in confirmed_keys}
    return max((confirmed or others).values(), key=lambda c: score(evidence, c), default=None)


def score(evidence: Evidence, choice: Choice) -> float:
    """Return the score of a spec; more is better, 0 without an objective."""
    return evidence.score(choice.objective.value) if choice.objective is not None else 0.0


def better(evidence: Evidence, chosen: Choice) -> dict[SpecKey, Choice]:
    """Return the other candidates whose measured objective is better than that of the chosen spec."""
    chosen_score = score(evidence, chosen)
    return {
        key: choice
        for key, choice in candidates(evidence).items()
        if score(evidence, choice) > chosen_score and not ev.same(choice.settings, chosen.settings)
    }


def _without_recommendation(evidence: Evidence, message: str) -> Answer:
    """Return the answer of a failed experiment: why no spec is recommended."""
    results = _choices_with_results(evidence)
    current = today(evidence)
    if not results:
        # Today's spec may have a result outside the space, which is no result of a spec to recommend.
        inside = [row for row in evidence.rows if row.index is not None]
        if any(row.status.result is not None for row in inside):
            return Answer(kind="Failed", current=current, message=_UNCOMPUTABLE)
        if all(row.status.reason in UNINFORMATIVE for row in inside):
            return Answer(kind="Failed", current=current, message=message)
        return Answer(
            kind="NothingRan",
            obstacle=Obstacle(constraint=None, nearest=None),
            current=current,
            message=message,
        )
    if any(ev.allowed(evidence, choice) for choice in results.values()):
        return Answer(kind="Failed", current=current, message=message)
    count = len(evidence.spec.constraints)
    return Answer(kind="Impossible", obstacle=obstacle(results, count), current=current, message=message)


def _choices_with_results(evidence: Evidence) -> dict[SpecKey, Choice]:
    """Return every spec of the space with an objective, including those that break a constraint."""
    rows: dict[SpecKey, list[TrialRecord]] = {}
    for row in evidence.rows:
        if row.objective is not None and row.index is not None:
            rows.setdefault(row.key, []).append(row)
    return {key: ev.choice(evidence, trials) for key, trials in rows.items()}


def obstacle(results: Mapping[SpecKey, Choice], count: int) -> Obstacle:
    """Return the worst constraint of the nearest spec: the spec whose worst excess is the least.

    Args:
        results: each spec with an objective; at least one.
        count: number of constraints; at least one.
    """
    nearest = min(results.values(), key=lambda choice: max(_excesses(choice, count)))
    excesses = _excesses(nearest, count)
    reaches = [reach for k in range(count) if (reach := _reach(results, k, count)) is not None]
    return Obstacle(constraint=excesses.index(max(excesses)), nearest=nearest, reach=reaches)


def _excesses(choice: Choice, count: int) -> list[float]:
    """Return the ratio of each constraint's value to its bound: met at 1 or less; infinite without a value.

    `count` is the number of constraints.
    """
    ratios = {check.constraint: _ratio(check.measured.value, check.bound) for check in choice.checks}
    return [ratios.get(k, math.inf) for k in range(count)]


def _ratio(value: float, bound: float) -> float:
    if bound > 0:
        return value / bound
    return math.inf if value > 0 else 0.0


def _reach(results: Mapping[SpecKey, Choice], constraint: int, count: int) -> Reach | None:
    """Return the least value of one constraint among the specs that meet the others; None without any."""
    values = [
        (check.measured.value, choice)
        for choice in results.values()
        if all(excess <= 1 for k, excess in enumerate(_excesses(choice, count)) if k != constraint)
        for check in choice.checks
        if check.constraint == constraint
    ]
    if not values:
        return None
    value, choice = min(values, key=lambda value_and_choice: value_and_choice[0])
    return Reach(constraint=constraint, value=value, spec=choice.spec, settings=choice.settings)
