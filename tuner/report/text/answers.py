"""Sentences of the answer: the spec to run, its saving and its lead, or the obstacle."""

import math
from collections import Counter

from serving.report_pages import formatting
from serving.resources.tuning.trial import Estimate
from tuner import notation
from tuner.report.schema import Choice, Comparison, Obstacle, Report
from tuner.report.text import measure, phrases


def headline(report: Report) -> str:
    """Return the headline."""
    answer = report.answer
    match answer.kind:
        case "NothingRan":
            return "No spec ran: nothing can be recommended."
        case "Impossible":
            return f"No measured spec meets {_obstacle(report)}: nothing can be recommended."
        case "Failed":
            return "The experiment failed: nothing can be recommended."
        case _ if answer.choice is None:
            return "Nothing can be recommended yet."
        case _:
            return _recommended(report, answer.choice)


def _recommended(report: Report, choice: Choice) -> str:
    answer, name = report.answer, notation.spec(choice.settings)
    if answer.kind == "Unfinished":
        return f"The search is still running; the best spec so far is {name}."
    if answer.doubt is not None:
        words = f"{phrases.unsettled(answer.doubt)}: the best spec so far is {_worth(report, choice)}"
        return f"{words}; {phrases.unsettled_reasons(answer.doubt)}."
    if answer.current is not None and answer.current.settings == choice.settings:
        return f"Keep {name}, which runs today: no measured spec is better."
    against = answer.against_current
    if answer.current and against and _has_caution(report, "CurrentBetter"):
        today = notation.spec(answer.current.settings)
        change = gain(report, against.factor)
        return f"Keep {today}, which runs today: with the best spec of the space, {name}, {change}."
    return f"Run {_worth(report, choice)}."


def _worth(report: Report, choice: Choice) -> str:
    """Return a spec with its difference from today's spec, if that is known."""
    name, current = notation.spec(choice.settings), report.answer.current
    if current is not None and current.settings == choice.settings:
        return f"{name}, which runs today"
    saving = _saving(report)
    return f"{name}: {saving}" if saving else name


def _has_caution(report: Report, code: str) -> bool:
    return any(caution.code == code for caution in report.cautions)


def _obstacle(report: Report) -> str:
    obstacle = report.answer.obstacle
    if obstacle is None or obstacle.constraint is None:
        return "the constraints"
    bound = report.question.constraints[obstacle.constraint]
    return notation.constraint(bound, bound.bound)


def _saving(report: Report) -> str:
    """Return the difference from today's spec as the end of a sentence; empty if it is unknown."""
    answer = report.answer
    broken = broken_today(report)
    if broken:
        return f"today's spec breaks {formatting.listed(broken)}"
    against = answer.against_current
    if against is None:
        return ""
    if against.verdict == "Unclear":
        return "its difference from today's spec is within the noise"
    return f"{gain(report, against.factor)} than with today's spec"


def broken_today(report: Report) -> list[str]:
    """Return the constraints that today's spec surely breaks; a constraint without a value is broken."""
    current = report.answer.current
    if current is None:
        return []
    checks = {check.constraint: check for check in current.checks}
    return [
        notation.constraint(bound, bound.bound)
        for k, bound in enumerate(report.question.constraints)
        if k not in checks or checks[k].measured.low > checks[k].bound
    ]


def gain(report: Report, factor: Estimate) -> str:
    """Return `the same work costs 43 % less (38 % to 47 %)` for a spec that is better by this factor.

    With a factor below 1 the spec is worse, and the same work costs more.
    """
    shown = measure.of(report.question)
    is_better = factor.value >= 1

    def share(value: float) -> float:
        """Return the change of the shown measure, as a share, in the direction that the sentence names."""
        gained = 1 - 1 / value if shown.less_is_better else value - 1
        return gained if is_better else -gained

    direction, opposite = ("less", "more") if shown.less_is_better == is_better else ("more", "less")
    low, high = sorted((share(factor.low), share(factor.high)))
    interval = _interval(low, high, direction, opposite)
    return f"{_subject(report)} {formatting.percent(share(factor.value))} {direction}{interval}"


def _interval(low: float, high: float, direction: str, opposite: str) -> str:
    """Return the interval of a share in brackets; a negative end is in the opposite direction."""
    if formatting.percent(low) == formatting.percent(high):
        return ""
    if low < 0 < high:
        return f" (from {formatting.percent(-low)} {opposite} to {formatting.percent(high)} {direction})"
    return f" ({formatting.percent(low)} to {formatting.percent(high)})"


def _subject(report: Report) -> str:
    match report.question.metric:
        case "throughputPerCost" | "costAtRate" | "tokensPerCost":
            return "the same work costs"
        case "cost":
            return "a replica costs"
        case "latency":
            return f"the p{report.question.percentile} latency is"
        case "tokensPerSecond":
            return "a replica makes tokens at a rate that is"
        case _:
            return "a replica answers"


def details(report: Report) -> list[str]:
    """Return the measurements of the recommended spec."""
    choice = report.answer.choice
    if choice is None:
        return []
    shown = measure.of(report.question)
    sentences = [_objective(shown, choice)] if choice.objective else []
    if choice.throughput is not None:
        rate = notation.interval(choice.throughput, formatting.number)
        cost = (
            ""
            if choice.cost_per_hour is None
            else f" and costs {formatting.number(choice.cost_per_hour)} per hour"
        )
        sentences.append(f"One replica answers {rate} requests/s{cost}.")
    sentences += [_check(report, choice, k) for k in range(len(report.question.constraints))]
    if choice.cpu_cores > 0 or choice.memory_bytes > 0:
        cores = formatting.number(choice.cpu_cores)
        sentences.append(
            f"It used {cores} {'core' if cores == '1' else 'cores'}"
            f" and {formatting.size(choice.memory_bytes)} of memory, including shared pages."
        )
    count = formatting.count(len(choice.trials), "measurement")
    sentences.append(f"These figures are from {count}: {formatting.listed(choice.trials)}.")
    if report.repeatability > 0:
        varies = formatting.percent(math.expm1(report.repeatability))
        sentences.append(
            f"Repeated measurements of a spec typically differ by {varies}, by all trials;"
            " the intervals include that."
        )
    return sentences


def _objective(shown: measure.ObjectiveMeasure, choice: Choice) -> str:
    estimate = shown.estimate(choice.objective) if choice.objective else None
    if estimate is None:
        return "Its objective cannot be computed."
    words = shown.sentence.format(notation.interval(estimate, shown.write))
    return f"{words[0].upper()}{words[1:]}; the range is the 95 % interval."


def _check(report: Report, choice: Choice, k: int) -> str:
    bound = report.question.constraints[k]
    write, name = notation.writer(bound), notation.metric(bound)
    check = next((check for check in choice.checks if check.constraint == k), None)
    if check is None:
        return (
            f"The {name} has no value in some measurement; at most {write(bound.bound)} is allowed: broken."
        )
    words = notation.interval(check.measured, write)
    verdict = (
        "met"
        if check.measured.high <= check.bound
        else "broken"
        if check.measured.low > check.bound
        else "at its limit"
    )
    margin = ""
    if bound.metric != "errorRate" and 0 < check.measured.value <= check.bound:
        margin = f", {formatting.percent(1 - check.measured.value / check.bound)} below it"
    return f"The {name} was {words}; at most {write(check.bound)} is allowed: {verdict}{margin}."


def against_current(report: Report) -> list[str]:
    """Return the comparison with today's spec, if there is one."""
    answer = report.answer
    if answer.choice is None or not report.question.inference:
        return []
    if answer.current is None and _has_caution(report, "CurrentDidNotRun"):
        return ["Today's spec failed when it was measured: the saving is unknown."]
    if answer.current is None:
        return ["Today's spec was not measured: the saving is unknown."]
    sentences = [_today(report, answer.current)]
    sentences += [f"It breaks {words}." for words in broken_today(report)]
    if answer.current.settings == answer.choice.settings:
        return [*sentences, "It is the recommended spec."]
    if answer.against_current is None:
        return [
            *sentences,
            "Its objective cannot be computed: the saving is unknown.",
        ]
    return [*sentences, _compared(report, answer.against_current, "today's spec")]


def _today(report: Report, current: Choice) -> str:
    today = f"Today runs {notation.spec(current.settings)}"
    if current.cost_per_hour is not None:
        return f"{today}, which costs {formatting.number(current.cost_per_hour)} per hour and replica."
    return f"{today}; its cost is unknown, as it lacks a limit." if report.question.prices else f"{today}."


def against_runner_up(report: Report) -> list[str]:
    """Return the lead over the runner-up."""
    answer = report.answer
    if answer.choice is None or answer.runner_up is None:
        return []
    name = notation.spec(answer.runner_up.settings)
    sentences = [f"The runner-up is {name}, measured by {formatting.listed(answer.runner_up.trials)}."]
    if answer.against_runner_up is not None:
        sentences.append(_compared(report, answer.against_runner_up, "the runner-up"))
    return sentences


def alternative(report: Report) -> list[str]:
    """Return why the recommended spec was chosen and not another one of the same price."""
    answer = report.answer
    choice, other = answer.choice, answer.alternative
    if choice is None or other is None or choice.objective is None or other.choice.objective is None:
        return []
    shown = measure.of(report.question)
    ours, theirs = shown.estimate(choice.objective), shown.estimate(other.choice.objective)
    if ours is None or theirs is None:
        return []
    price = "" if choice.cost_per_hour is None else " of this price"
    with_it = shown.sentence.format(notation.interval(theirs, shown.write))
    named = f"The best other spec{price} is {notation.spec(other.choice.settings)}: with it {with_it}"
    sentences = [f"{named}, and with the recommended spec {notation.interval(ours, shown.write)}."]
    constrained = bool(report.question.constraints)
    if constrained and answer.probability is not None and other.probability is not None:
        theirs_meets, ours_meets = phrases.chance(other.probability), phrases.chance(answer.probability)
        sentences.append(
            f"The next measurement meets every constraint with a probability of {theirs_meets},"
            f" and {ours_meets} for the recommended spec."
        )
    return [*sentences, phrases.rule(other.rule, constrained=constrained)]


def _compared(report: Report, comparison: Comparison, other: str) -> str:
    words = f"With the recommended spec {gain(report, comparison.factor)} than with {other}"
    if comparison.verdict == "Unclear":
        return f"{words}: the interval includes no difference, so neither is proven better."
    return f"{words}."


def impossible(report: Report) -> list[str]:
    """Return why there is no recommendation; empty if there is one, or none yet.

    The sentences have the reason of a failure; the ends of the trials if no spec ran; else the spec nearest
    to the constraints, and the bounds that measured specs met.
    """
    obstacle, message = report.answer.obstacle, report.answer.message
    if report.answer.kind == "Failed":
        return [f"The reason: {message.rstrip('.')}."] if message else []
    if obstacle is None:
        return []
    if obstacle.constraint is None:
        return [f"{_ends_of_trials(report)}."]
    return [*_nearest(report, obstacle), *_reaches(report, obstacle)]


def _ends_of_trials(report: Report) -> str:
    """Return how the trials without a result ended; today's spec outside the space may have a result."""
    reasons = Counter(row.reason for row in report.trials_of_model if row.reason and row.result is None)
    ends = [phrases.ended_together(reason, count) for reason, count in reasons.items()]
    return formatting.listed(ends) or "No trial ended"


def _nearest(report: Report, obstacle: Obstacle) -> list[str]:
    nearest, k = obstacle.nearest, obstacle.constraint
    if nearest is None or k is None:
        return []
    bound = report.question.constraints[k]
    check = next((check for check in nearest.checks if check.constraint == k), None)
    write = notation.writer(bound)
    if check is None:
        name = notation.spec(nearest.settings)
        limit = f"at most {write(bound.bound)} is allowed"
        return [f"The nearest spec is {name}, without a value of the {notation.metric(bound)}; {limit}."]
    over = f", {formatting.times(check.measured.value / check.bound)} the bound" if check.bound > 0 else ""
    value = notation.interval(check.measured, write)
    name = notation.metric(bound)
    limit = f"at most {write(check.bound)} is allowed{over}"
    return [f"The nearest spec is {notation.spec(nearest.settings)}: its {name} was {value}; {limit}."]


def _reaches(report: Report, obstacle: Obstacle) -> list[str]:
    sentences: list[str] = []
    for reach in obstacle.reach:
        bound = report.question.constraints[reach.constraint]
        write = notation.writer(bound)
        others = " together with the other constraints" if len(report.question.constraints) > 1 else ""
        sentences.append(
            f"A bound of {write(reach.value)} on the {notation.metric(bound)} can be met{others},"
            f" by {notation.spec(reach.settings)}."
        )
    return sentences
