"""Sentences of the evidence: question, cost of the search, shares of the parameters, fronts and cautions."""

from serving.report_pages import formatting
from tuner import notation
from tuner.report.schema import Caution, Front, Report
from tuner.report.text import measure, phrases


def question(report: Report) -> list[str]:
    """Return the question: target, objective, constraints, space, load, prices, warm start and machine."""
    question = report.question
    target = (
        f"Inference {question.inference}" if question.inference else f"ModelVersion {question.model_version}"
    )
    predictor = f", predictor {question.predictor}" if question.predictor else ""
    shown = measure.of(question)
    extreme = "least" if shown.less_is_better else "most"
    sentences = [f"The target is {target}{predictor}; the goal is the {extreme} {shown.label}."]
    if question.constraints:
        constraints = [notation.constraint(bound, bound.bound) for bound in question.constraints]
        sentences.append(f"The constraints: {formatting.listed(constraints)}.")
    sizes = [f"{formatting.count(len(axis.values), 'value')} of {axis.name}" for axis in question.axes]
    sentences.append(f"The space has {formatting.count(question.specs, 'spec')}: {formatting.listed(sizes)}.")
    sentences += [_load(report), _prices(report)]
    if question.warm_start:
        sentences.append(_learned(report))
    if question.machine:
        sentences.append(f"Measured on {question.machine}.")
    return sentences


def _learned(report: Report) -> str:
    if not report.learned:
        return "There was no earlier experiment with the same parameters to start from."
    earlier = [(each.experiment, each.weight) for each in report.learned]
    used = [f"{name} ({formatting.percent(weight)})" for name, weight in earlier if weight > 0]
    dropped = formatting.listed([name for name, weight in earlier if weight <= 0])
    why = "with too few measurements, or another ranking of the specs"
    if not used:
        return f"Earlier experiments were not used in the end: {dropped}, {why}."
    rest = f"; {dropped} was not used, {why}" if dropped else ""
    listed = formatting.listed(used)
    return f"The search also used {listed}{rest}; the figures here are from this experiment alone."


def _load(report: Report) -> str:
    question = report.question
    sources = {
        "model": "generated from the model's metadata",
        "template": "generated from the given template",
        "recorded": "recorded ones",
        "locustfile": "those of the given locustfile",
        "chat": "streamed chats of generated lengths",
    }
    mode = (
        "each user waits for an answer before its next request"
        if question.mode == "closed"
        else "they are sent on schedule, without waiting for answers"
    )
    whole = formatting.duration(question.window_seconds)
    if question.levels or not question.probe_seconds:
        windows = f"Each level of load was held for {whole}"
    else:
        short = formatting.duration(question.probe_seconds)
        windows = f"A level of load was held for {short} in the search, and that of the result for {whole}"
    return f"The requests are {sources[question.requests]}; {mode}. {windows}{_warm_up(report)}."


def _warm_up(report: Report) -> str:
    first, others = report.question.warmup_seconds, report.question.settle_seconds
    if not first:
        return ""
    more = f", and {formatting.duration(others)} before each other level" if others else ""
    return f"; {formatting.duration(first)} of warm-up came before the first{more}"


def _prices(report: Report) -> str:
    given = report.question.prices
    prices = [f"{phrases.PRICES[name]} {formatting.number(price)}" for name, price in given.items()]
    return f"Prices per hour: {formatting.listed(prices)}." if prices else "No prices were given."


def spent(report: Report) -> list[str]:
    """Return the cost of the search, its expected regret, and how to continue if it is not settled."""
    spent = report.spent
    early = f", of which {spent.stopped_early:,} stopped early" if spent.stopped_early else ""
    ends = [
        f"{spent.succeeded:,} measured{early}" if spent.succeeded else "",
        f"{spent.failed:,} failed" if spent.failed else "",
        f"{spent.running:,} running" if spent.running else "",
    ]
    outcome = "; ".join(end for end in ends if end)
    verb = "was" if spent.trials == 1 else "were"
    sentences = [
        f"{formatting.count(spent.trials, 'trial')} {verb} made{f' ({outcome})' if outcome else ''}."
    ]
    sentences.append(_coverage(report))
    money = f" and cost {formatting.number(spent.cost)}" if spent.cost else ""
    sentences.append(f"The search took {formatting.duration(spent.seconds)}{money}.")
    if report.answer.choice is not None and spent.expected_regret < 1:  # it is 1 if nothing is known
        best = "The recommended spec" if report.answer.kind == "Recommended" else "The best spec so far"
        sentences.append(f"{best} is {phrases.expected_regret(spent.expected_regret)}.")
    doubt = report.answer.doubt
    if doubt is not None and doubt.more:
        sentences.append(
            f"To go on, set maxNumTrials to {spent.trials + doubt.more}, and raise maxDuration or maxCost if"
            " it ended the search: the experiment continues."
        )
    return sentences


def _coverage(report: Report) -> str:
    """Return the share of the space that was measured."""
    size = report.question.specs
    with_result = [row for row in report.trials_of_model if row.result is not None]
    measured = len({row.spec for row in with_result if row.spec is not None})
    share = f" ({formatting.percent(measured / size)})" if size else ""
    verb = "was" if measured == 1 else "were"
    return f"Of {formatting.count(size, 'spec')}, {measured:,} {verb} measured{share}."


def model(report: Report) -> list[str]:
    """Return the basis of the plots of the whole space."""
    if report.model is None:
        return ["Too few specs ran to predict the others."]
    trials = formatting.count(report.model.observations, "trial")
    specs = formatting.count(report.question.specs, "spec")
    return [
        f"These are predictions for {specs} from {trials}, by a Gaussian process.",
        "Far from measured specs they are little more than guesses, and the uncertainty is large.",
    ]


def shares(report: Report) -> list[str]:
    """Return the shares of the parameters in the variance of the objective."""
    if report.model is None or not report.model.shares:
        return []
    axes = report.question.axes
    single = sorted((s for s in report.model.shares if len(s.axes) == 1), key=lambda s: -s.share)
    parts = [f"{axes[s.axes[0]].name} {formatting.percent(s.share)}" for s in single]
    sentences = [f"Share of the variation that each parameter alone explains: {formatting.listed(parts)}."]
    pairs = [s for s in report.model.shares if len(s.axes) == 2]
    if pairs:
        top = max(pairs, key=lambda s: s.share)
        names = formatting.listed([axes[i].name for i in top.axes])
        sentences.append(f"The pair that adds most is {names}: {formatting.percent(top.share)}.")
    return sentences


def fronts(report: Report) -> list[str]:
    """Return the number of specs on each front."""
    return [_front(front) for front in report.fronts]


def _front(front: Front) -> str:
    on = sum(point.front for point in front.points)
    name = (
        "requests per second"
        if front.measure == "throughput"
        else f"p{front.percentile} {notation.METRICS[front.measure]}"
    )
    verb = "is" if on == 1 else "are"
    allowed = sum(point.meets != "No" for point in front.points)
    if on == 0:
        return f"No completely measured spec meets the constraints: the front of cost and {name} is empty."
    return (
        f"Of {formatting.count(allowed, 'spec')} that may meet the constraints, {on:,} {verb} on the front"
        f" of cost and {name}."
    )


def trials(report: Report) -> list[str]:
    """Return the end of each trial, in their order."""
    return [
        f"Trial {row.number}: {notation.spec(row.settings)}: {phrases.ended(row)}." for row in report.trials
    ]


def cautions(report: Report) -> list[str]:
    """Return the cautions."""
    return [_caution(report, caution) for caution in report.cautions]


# The sentence of each caution by its code; `_caution` fills in the braces.
_CAUTIONS = {
    "OutsideMeasured": "Today's spec is outside the searched space{tail}.",
    "BrokeConstraint": "{Who} measured the same spec, which broke a constraint at its lowest load:"
    " the spec may break one in use.",
    "NarrowMargin": "The recommended spec is so near to a limit that, by the measured noise, its next"
    " measurement may exceed it; no completely measured spec has a safer margin.",
    "NotConfirmed": "The recommended spec was measured only once: the measurement may have been lucky.",
    "NoPrices": "No prices were given: costs are not real.",
    "CurrentNotMeasured": "Today's spec was not measured: the saving is unknown.",
    "CurrentDidNotRun": "Today's spec failed when it was measured ({who}): the saving is unknown.",
    "CurrentCostUnknown": "Today's cost of a replica is unknown, as it lacks a limit: the saving is unknown.",
    "CurrentBetter": "Today's spec measured better than every spec of the space:"
    " tune again with a space that includes it.",
    "Unfinished": "The experiment is {phase}: the results may change.",
    "SeveralMachines": "The trials ran on different machines and are hard to compare: {detail}.",
    "NotSteady": "In {who} the measurement had not settled at its end.",
    "Note": "{Who}: {detail}",
    "GeneratorLimited": "In {who} the load generator, not the model, was the limit:"
    " the measured throughput may be too low.",
    "LimitNotEnforced": "In {who} a limit was not enforced{tail}: with it the throughput may be lower.",
    "ModelChanged": "{Who} measured an earlier model and {does} not count here.",
    "MeasuredBetter": "{Who} measured a better value but {is_} not recommended:"
    " too near to a bound for the measured noise, measured less often, or equal within the precision of a"
    " trial.",
}


def _caution(report: Report, caution: Caution) -> str:
    is_single = len(caution.trials) == 1
    who = _trials_named(report, caution.trials)
    return _CAUTIONS[caution.code].format(
        does="does" if is_single else "do",
        is_="is" if is_single else "are",
        who=who,
        Who=f"{who[0].upper()}{who[1:]}",
        tail=f" ({caution.detail})" if caution.detail else "",
        detail=caution.detail,
        phase=report.phase.lower() or "not started",
    )


def _trials_named(report: Report, names: list[str]) -> str:
    """Return `trial 3`, `trials 3 and 7`, and whether the recommended spec is among them."""
    numbers = [str(row.number) for row in report.trials if row.name in names]
    choice = report.answer.choice
    chosen = [*choice.trials, *choice.broken] if choice else []
    among = " (one of the recommended spec's)" if any(name in chosen for name in names) else ""
    return f"{'trial' if len(numbers) == 1 else 'trials'} {formatting.listed(numbers)}{among}"
