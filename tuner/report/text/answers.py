"""Sentences of the answer: the spec to run, its saving and its lead, or why nothing can be recommended."""

import math
from collections import Counter

from serving.pages import figures
from serving.resources.trial import Estimate
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
        return f"The search is not over; the best so far is {name}."
    if answer.current is not None and answer.current.settings == choice.settings:
        return f"Keep {name}, which runs today: nothing that was measured is better."
    against = answer.against_current
    if answer.current and against and any(one.code == "CurrentBetter" for one in report.cautions):
        today = notation.spec(answer.current.settings)
        return f"Keep {today}, which runs today: with the best spec of the space, {name}, {gain(report, against.factor)}."
    saving = _saving(report)
    return f"Run {name}: {saving}." if saving else f"Run {name}."


def _obstacle(report: Report) -> str:
    obstacle = report.answer.obstacle
    if obstacle is None or obstacle.constraint is None:
        return "the constraints"
    bound = report.question.constraints[obstacle.constraint]
    return notation.constraint(bound, bound.bound)


def _saving(report: Report) -> str:
    """Return the saving as the end of a sentence; empty if nothing is known about today's spec."""
    answer = report.answer
    broken = broken_today(report)
    if broken:
        return f"today's spec breaks {figures.listed(broken)}"
    against = answer.against_current
    if against is None:
        return ""
    if against.verdict == "Unclear":
        return "whether it is better than the spec that runs today is within the noise"
    return f"{gain(report, against.factor)} than with the spec that runs today"


def broken_today(report: Report) -> list[str]:
    """Return the constraints that today's spec surely breaks; one without a value is broken."""
    current = report.answer.current
    if current is None:
        return []
    seen = {check.constraint: check for check in current.checks}
    return [
        notation.constraint(bound, bound.bound)
        for k, bound in enumerate(report.question.constraints)
        if k not in seen or seen[k].measured.low > seen[k].bound
    ]


def gain(report: Report, factor: Estimate) -> str:
    """Return `the same work costs 43 % less (38 % to 47 %)`, or its opposite."""
    shown = measure.of(report.question)
    better = factor.value >= 1
    ends = [factor.low, factor.high]
    if shown.less_is_better:
        share, ends = 1 - 1 / factor.value, [1 - 1 / end for end in ends]
    else:
        share, ends = factor.value - 1, [end - 1 for end in ends]
    if not better:
        share, ends = -share, [-end for end in ends]
    less, more = ("less", "more") if shown.less_is_better == better else ("more", "less")
    return f"{_subject(report)} {figures.percent(share)} {less}{_range(sorted(ends), less, more)}"


def _range(ends: list[float], same: str, opposite: str) -> str:
    """Return the interval of a share, whose ends may have different signs."""
    low, high = ends
    if figures.percent(low) == figures.percent(high):
        return ""
    if low < 0 < high:
        return f" (from {figures.percent(-low)} {opposite} to {figures.percent(high)} {same})"
    return f" ({figures.percent(low)} to {figures.percent(high)})"


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
        rate = notation.interval(choice.throughput, figures.number)
        cost = (
            ""
            if choice.cost_per_hour is None
            else f" and costs {figures.number(choice.cost_per_hour)} per hour"
        )
        sentences.append(f"One replica answers {rate} requests/s{cost}.")
    sentences += [_check(report, choice, k) for k in range(len(report.question.constraints))]
    if choice.cpu_cores > 0 or choice.memory_bytes > 0:
        cores = figures.number(choice.cpu_cores)
        sentences.append(
            f"It used {cores} {'core' if cores == '1' else 'cores'} and {figures.size(choice.memory_bytes)} of memory, shared pages included."
        )
    times = figures.count(len(choice.trials), "measurement")
    sentences.append(f"This is from {times}: {figures.listed(choice.trials)}.")
    if report.repeatability > 0:
        varies = figures.percent(math.expm1(report.repeatability))
        sentences.append(
            f"Measured again, a spec typically gives {varies} more or less, as all trials together tell; the intervals count that in."
        )
    return sentences


def _objective(shown: measure.Measure, choice: Choice) -> str:
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
        return f"The {name} is not a number in every measurement; at most {write(bound.bound)} is allowed: broken."
    words = notation.interval(check.measured, write)
    verdict = (
        "met"
        if check.measured.high <= check.bound
        else "broken"
        if check.measured.low > check.bound
        else "at its limit"
    )
    room = ""
    if bound.metric != "errorRate" and 0 < check.measured.value <= check.bound:
        room = f", {figures.percent(1 - check.measured.value / check.bound)} below it"
    return f"The {name} was {words}; at most {write(check.bound)} is allowed: {verdict}{room}."


def against_current(report: Report) -> list[str]:
    """Return the comparison with today's spec, if there is one."""
    answer = report.answer
    if answer.choice is None or not report.question.inference:
        return []
    if answer.current is None and any(one.code == "CurrentDidNotRun" for one in report.cautions):
        return [
            "What runs today did not run when it was measured: what the recommendation saves is not known."
        ]
    if answer.current is None:
        return ["What runs today was not measured: what the recommendation saves is not known."]
    sentences = [_today(report, answer.current)]
    sentences += [f"It breaks {words}." for words in broken_today(report)]
    if answer.current.settings == answer.choice.settings:
        return [*sentences, "That is the spec that is recommended."]
    if answer.against_current is None:
        return [
            *sentences,
            "It was measured, and its objective cannot be computed: what the recommendation saves is not known.",
        ]
    return [*sentences, _compared(report, answer.against_current, "the spec that runs today")]


def _today(report: Report, current: Choice) -> str:
    today = f"Today runs {notation.spec(current.settings)}"
    if current.cost_per_hour is not None:
        return f"{today}, which costs {figures.number(current.cost_per_hour)} per hour and replica."
    return (
        f"{today}, whose cost is not known, as it lacks a limit." if report.question.prices else f"{today}."
    )


def against_runner_up(report: Report) -> list[str]:
    """Return the lead over the runner-up."""
    answer = report.answer
    if answer.choice is None or answer.runner_up is None:
        return []
    name = notation.spec(answer.runner_up.settings)
    sentences = [f"The runner-up is {name}, measured by {figures.listed(answer.runner_up.trials)}."]
    if answer.against_runner_up is not None:
        sentences.append(_compared(report, answer.against_runner_up, "the runner-up"))
    return sentences


def _compared(report: Report, comparison: Comparison, other: str) -> str:
    words = f"With the recommended spec {gain(report, comparison.factor)} than with {other}"
    if comparison.verdict == "Unclear":
        return f"{words}: the interval includes no difference, so that neither is proven better."
    return f"{words}."


def impossible(report: Report) -> list[str]:
    """Return the constraint in the way, the nearest spec, and the bounds that could have been met."""
    obstacle, message = report.answer.obstacle, report.answer.message
    if report.answer.kind == "Failed":
        return [f"It gave up: {message.rstrip('.')}."] if message else []
    if obstacle is None:
        return []
    if obstacle.constraint is None:
        return [f"{_ended_how(report)}."]
    return [*_nearest(report, obstacle), *_reaches(report, obstacle)]


def _ended_how(report: Report) -> str:
    reasons = Counter(row.reason for row in report.trials if row.reason)
    said = [phrases.ended_together(reason, count) for reason, count in reasons.items()]
    return figures.listed(said) or "No trial ended"


def _nearest(report: Report, obstacle: Obstacle) -> list[str]:
    nearest, k = obstacle.nearest, obstacle.constraint
    if nearest is None or k is None:
        return []
    bound = report.question.constraints[k]
    check = next((check for check in nearest.checks if check.constraint == k), None)
    write = notation.writer(bound)
    if check is None:
        return [
            f"Nearest came {notation.spec(nearest.settings)}, of which there is no {notation.metric(bound)}; at most {write(bound.bound)} is allowed."
        ]
    over = f", {figures.times(check.measured.value / check.bound)} the bound" if check.bound > 0 else ""
    seen = notation.interval(check.measured, write)
    name = notation.metric(bound)
    return [
        f"Nearest came {notation.spec(nearest.settings)}: its {name} was {seen}, and at most {write(check.bound)} is allowed{over}."
    ]


def _reaches(report: Report, obstacle: Obstacle) -> list[str]:
    sentences: list[str] = []
    for reach in obstacle.reach:
        bound = report.question.constraints[reach.constraint]
        write = notation.writer(bound)
        others = ", the other constraints as they are" if len(report.question.constraints) > 1 else ""
        sentences.append(
            f"A {notation.metric(bound)} of at most {write(reach.value)} would have been met{others}: by {notation.spec(reach.settings)}."
        )
    return sentences
