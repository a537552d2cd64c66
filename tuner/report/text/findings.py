"""Sentences of the evidence: question, cost of the search, parameters that matter, front, and cautions."""

from serving.pages import figures
from tuner import notation
from tuner.report.schema import Caution, Front, Report
from tuner.report.text import measure, phrases


def question(report: Report) -> list[str]:
    """Return the question: target, objective, constraints, space, load and prices."""
    asked = report.question
    target = (
        f"the Inference {asked.inference}" if asked.inference else f"the ModelVersion {asked.model_version}"
    )
    part = f", predictor {asked.predictor}" if asked.predictor else ""
    want = "least" if measure.of(asked).less_is_better else "most"
    found = [f"Wanted is the spec of {target}{part} with the {want} of: {measure.of(asked).label}."]
    if asked.constraints:
        found.append(
            f"Allowed: {figures.listed([notation.constraint(bound, bound.bound) for bound in asked.constraints])}."
        )
    sizes = [f"{figures.count(len(axis.values), 'value')} of {axis.name}" for axis in asked.axes]
    found.append(f"There are {figures.count(asked.specs, 'spec')}: {figures.listed(sizes)}.")
    found += [_load(report), _prices(report)]
    if asked.warm_start:
        found.append(_learned(report))
    if asked.machine:
        found.append(f"Measured on {asked.machine}.")
    return found


def _learned(report: Report) -> str:
    if not report.learned:
        return "No earlier experiment with the same parameters says where to begin."
    used = [f"{one.experiment} ({figures.percent(one.weight)})" for one in report.learned if one.weight > 0]
    dropped = figures.listed([one.experiment for one in report.learned if one.weight <= 0])
    why = "measured too little, or ranks the specs otherwise than the trials here"
    if not used:
        return f"Earlier experiments were not used in the end: {dropped} {why}."
    tail = f"; not used was {dropped}, which {why}" if dropped else ""
    return f"Where to look was learned from {figures.listed(used)} as well{tail}; no number here is theirs."


def _load(report: Report) -> str:
    asked = report.question
    kinds = {
        "model": "made from the model's own description",
        "template": "made from the given template",
        "recorded": "recorded ones",
        "locustfile": "those of the given locustfile",
    }
    mode = (
        "each user waits for its answer before it asks again"
        if asked.mode == "closed"
        else "requests are sent on schedule, whether or not the ones before were answered"
    )
    windows = f"Each level of load was held for {figures.duration(asked.window_seconds)}"
    warm = f" after {figures.duration(asked.warmup_seconds)} of warm-up" if asked.warmup_seconds else ""
    return f"Requests are {kinds[asked.requests]}; {mode}. {windows}{warm}."


def _prices(report: Report) -> str:
    given = report.question.prices
    said = [f"{phrases.PRICES[name]} {figures.number(price)}" for name, price in given.items()]
    return f"Per hour costs {figures.listed(said)}." if said else "No prices were given."


def spent(report: Report) -> list[str]:
    """Return the cost of the search, and its expected regret."""
    took = report.spent
    early = f", of which {took.stopped_early:,} stopped early" if took.stopped_early else ""
    ends = [
        f"{took.succeeded:,} measured{early}" if took.succeeded else "",
        f"{took.failed:,} failed" if took.failed else "",
        f"{took.running:,} running" if took.running else "",
    ]
    how = "; ".join(end for end in ends if end)
    verb = "was" if took.trials == 1 else "were"
    found = [f"{figures.count(took.trials, 'trial')} {verb} made{f' ({how})' if how else ''}."]
    found.append(_covered(report))
    money = f" and cost {figures.number(took.cost)}" if took.cost else ""
    found.append(f"That took {figures.duration(took.seconds)}{money}.")
    if report.answer.choice is not None and took.expected_regret < 1:
        best = "The recommended spec" if report.answer.kind == "Recommended" else "The best so far"
        found.append(f"{best} is {phrases.missed(took.expected_regret)}.")
    return found


def _covered(report: Report) -> str:
    """Return the share of the space that was measured."""
    size = report.question.specs
    seen = len({row.spec for row in report.trials if row.spec is not None and row.result is not None})
    share = f" ({figures.percent(seen / size)})" if size else ""
    return f"Of {figures.count(size, 'spec')}, {seen:,} {'was' if seen == 1 else 'were'} measured{share}."


def model(report: Report) -> list[str]:
    """Return the basis of the plots of the whole space."""
    if report.model is None:
        return ["Too few specs ran to say anything of those that were not measured."]
    about = report.model
    trials, specs = figures.count(about.observations, "trial"), figures.count(report.question.specs, "spec")
    return [
        f"These are expectations of {specs} from {trials}, by a Gaussian process.",
        "Where nothing was measured nearby, they are little more than guesses, as the uncertainty says.",
    ]


def shares(report: Report) -> list[str]:
    """Return the parameters that matter."""
    if report.model is None or not report.model.shares:
        return []
    axes = report.question.axes
    single = sorted((s for s in report.model.shares if len(s.axes) == 1), key=lambda s: -s.share)
    said = [f"{axes[s.axes[0]].name} {figures.percent(s.share)}" for s in single]
    found = [f"Of what the specs differ in, each parameter alone explains: {figures.listed(said)}."]
    pairs = [s for s in report.model.shares if len(s.axes) == 2]
    if pairs:
        top = max(pairs, key=lambda s: s.share)
        names = figures.listed([axes[i].name for i in top.axes])
        found.append(f"Of pairs, {names} together add most: {figures.percent(top.share)}.")
    return found


def fronts(report: Report) -> list[str]:
    """Return the number of specs on each front."""
    return [_front(front) for front in report.fronts]


def _front(front: Front) -> str:
    on = sum(point.front for point in front.points)
    what = (
        "requests per second"
        if front.measure == "throughput"
        else f"p{front.percentile} {notation.METRICS[front.measure]}"
    )
    verb = "is" if on == 1 else "are"
    allowed = sum(point.meets != "No" for point in front.points)
    if on == 0:
        return f"No spec that was measured to its end meets the constraints: in cost and {what} there is nothing to choose from."
    return f"Of {figures.count(allowed, 'spec')} that may meet the constraints, {on:,} {verb} beaten by no other in both cost and {what}."


def trials(report: Report) -> list[str]:
    """Return the end of each trial, in their order."""
    return [
        f"Trial {row.number}: {notation.spec(row.settings)}: {phrases.ended(row)}." for row in report.trials
    ]


def cautions(report: Report) -> list[str]:
    """Return the cautions."""
    return [_caution(report, caution) for caution in report.cautions]


_WORDS = {
    "OutsideMeasured": "The spec that runs today is outside of the searched space{tail}.",
    "BrokeConstraint": "{Who} measured the same spec, and no load that was tried met the constraints: it may break them when it runs.",
    "NarrowMargin": "The recommended spec is so near to a limit that, by the noise that was seen, its next measurement may be beyond it;"
    " none that was measured to its end is surer to keep it.",
    "NotConfirmed": "The recommended spec was measured once only, and not confirmed: one lucky measurement is possible.",
    "NoPrices": "No prices were given: costs are not real.",
    "CurrentNotMeasured": "What runs today was not measured: what the recommendation saves is not known.",
    "CurrentDidNotRun": "What runs today did not run when it was measured ({who}): what the recommendation saves is not known.",
    "CurrentCostUnknown": "What a replica costs today is not known, as it lacks a limit: what the recommendation saves is not known.",
    "CurrentBetter": "What runs today measured better than every spec of the space: tune again with a space that it is in.",
    "Unfinished": "The experiment is {phase}: what follows may change.",
    "SeveralMachines": "Trials ran on different machines, and are hard to compare: {detail}.",
    "NotSteady": "In {who} the measurement had not settled when it ended.",
    "Note": "{Who}: {detail}",
}
_ONE = {
    "GeneratorLimited": "In {who} the load generator, not the model, was the limit: it may do more than is said.",
    "LimitNotEnforced": "In {who} a limit was not enforced{tail}: with the limit it may do less.",
    "ModelChanged": "{Who} measured the model that was served before: it says nothing here.",
    "MeasuredBetter": "{Who} measured a better value than the recommendation and is not recommended:"
    " too near to a bound for the noise that was seen, or not measured as often.",
}
_SEVERAL = {
    "GeneratorLimited": "In {who} the load generator, not the model, was the limit: they may do more than is said.",
    "LimitNotEnforced": "In {who} a limit was not enforced{tail}: with the limit they may do less.",
    "ModelChanged": "{Who} measured the model that was served before: they say nothing here.",
    "MeasuredBetter": "{Who} measured a better value than the recommendation and are not recommended:"
    " too near to a bound for the noise that was seen, or not measured as often.",
}


def _caution(report: Report, caution: Caution) -> str:
    words = {**_WORDS, **(_ONE if len(caution.trials) == 1 else _SEVERAL)}[caution.code]
    who = _who(report, caution.trials)
    return words.format(
        who=who,
        Who=f"{who[0].upper()}{who[1:]}",
        tail=f" ({caution.detail})" if caution.detail else "",
        detail=caution.detail,
        phase=report.phase.lower() or "not started",
    )


def _who(report: Report, names: list[str]) -> str:
    """Return `trial 3`, `trials 3 and 7`, and whether the recommended spec is among them."""
    numbers = [str(row.number) for row in report.trials if row.name in names]
    choice = report.answer.choice
    chosen = [*choice.trials, *choice.broken] if choice else []
    among = " (one of the recommended spec's)" if any(name in chosen for name in names) else ""
    return f"{'trial' if len(numbers) == 1 else 'trials'} {figures.listed(numbers)}{among}"
