"""The sensitivity of the answer: the prices and bounds at which another measured spec wins.

No spec without measurements is considered. Over one price p, every money objective is a line
`base + slope * p` to minimise, so the winners are the lower envelope of the lines. Over the bounds of a
constraint, the winner changes only at the bounds that the loads of trials need. Specs that measured better
than the recommended one are left out, as they would win at today's price and bound; the caution
`MeasuredBetter` names them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.resources.inference import Resources
from serving.resources.tuning.trial import Estimate
from tuner.constraints import measured_value
from tuner.load.level_search import results
from tuner.load.level_search.state import LoadPoint
from tuner.objective import objective_value
from tuner.report import evidence as ev
from tuner.report import judgement
from tuner.report.evidence import Evidence
from tuner.report.schema import BoundChange, Choice, PriceChange, Segment
from tuner.specs import prices as costing
from tuner.trial_record import MEASURED, TrialRecord

_MONEY = frozenset({"throughputPerCost", "tokensPerCost", "costAtRate", "cost"})
"""Objectives that depend on the price of a replica."""
_GIB = 2.0**30
PricedResource = Literal["cpu", "memory", "gpu"]
_PRICED_RESOURCES: tuple[PricedResource, ...] = ("cpu", "memory", "gpu")


@dataclass(frozen=True)
class Line:
    """The cost of the same work with one spec, over one price: `base + slope * price`, both not negative."""

    base: float
    slope: float

    def at(self, price: float) -> float:
        """Return the cost at this price."""
        return self.base + self.slope * price


@dataclass(frozen=True)
class BoundReading:
    """One load of a trial: the bound that it needs of one constraint, and its score."""

    value: float
    """Least bound that the load meets: seconds, or a share for an error rate."""
    score: float
    """`Evidence.score` of the objective at this load; more is better."""


SpecReadings = Sequence[Sequence[BoundReading]]
"""The readings of each trial of one spec."""


@dataclass(frozen=True)
class WinnerSpan:
    """An interval [start, end) of prices or bounds with its winner; the last `end` is infinite."""

    start: float
    end: float
    winner: int | None
    """Index among the compared lines or specs; None if no spec is allowed."""


class Crossing(NamedTuple):
    """The price from which another line is cheaper."""

    price: float
    winner: int
    """Index of the cheaper line."""


def envelope(lines: Sequence[Line]) -> list[WinnerSpan]:
    """Return the cheapest line at every price from 0 on, in the order of prices.

    At equal cost the winner remains, unless another line is cheaper right after that price.
    """
    if not lines:
        return []
    current = min(range(len(lines)), key=lambda i: (lines[i].base, lines[i].slope, i))
    spans: list[WinnerSpan] = []
    price = 0.0
    while True:
        crossing = _next_crossing(lines, current)
        if crossing is None:
            return [*spans, WinnerSpan(price, math.inf, current)]
        if crossing.price > price:
            spans.append(WinnerSpan(price, crossing.price, current))
            price = crossing.price
        current = crossing.winner


def _next_crossing(lines: Sequence[Line], current: int) -> Crossing | None:
    """Return the first crossing of the current line with a flatter one; None if no line is flatter.

    Of several crossings at one price, the flattest line wins.
    """
    here = lines[current]
    crossings = [
        Crossing((line.base - here.base) / (here.slope - line.slope), i)
        for i, line in enumerate(lines)
        if line.slope < here.slope
    ]
    finite = [crossing for crossing in crossings if math.isfinite(crossing.price)]
    return min(
        finite,
        key=lambda crossing: (crossing.price, lines[crossing.winner].slope, crossing.winner),
        default=None,
    )


def staircase(specs: Sequence[SpecReadings]) -> list[WinnerSpan]:
    """Return the winner at every bound of one constraint from 0 on.

    A spec is allowed at a bound if each of its trials has a reading within the bound. Its score is the
    geometric mean of its trials' best scores within the bound.

    Args:
        specs: the readings of each spec, without those that break another constraint.
    """
    bounds = sorted({reading.value for trials in specs for trial in trials for reading in trial})
    spans = [WinnerSpan(0.0, math.inf, None)]
    for bound in bounds:
        winner = _best(specs, bound)
        if winner != spans[-1].winner:
            last = spans.pop()
            if bound > last.start:
                spans.append(WinnerSpan(last.start, bound, last.winner))
            spans.append(WinnerSpan(bound, math.inf, winner))
    return spans


def _best(specs: Sequence[SpecReadings], bound: float) -> int | None:
    """Return the index of the best spec at this bound, the first of equals; None if no spec is allowed."""
    scores = [log_score(spec, bound) for spec in specs]
    best = max(scores, default=-math.inf)
    return scores.index(best) if best > -math.inf else None


def log_score(trials: SpecReadings, bound: float) -> float:
    """Return the log score of a spec at this bound; -inf if it is not allowed."""
    logs: list[float] = []
    for trial in trials:
        within = [reading.score for reading in trial if reading.value <= bound and reading.score > 0]
        if not within:
            return -math.inf
        logs.append(math.log(max(within)))
    return sum(logs) / len(logs) if logs else -math.inf


def prices(evidence: Evidence, chosen: Choice) -> list[PriceChange]:
    """Return the winner over each given price; empty if the objective does not involve money."""
    today = given_prices(evidence)
    if evidence.spec.objective.objective_metric_name not in _MONEY:
        return []
    choices = _compared_choices(evidence, chosen)
    changes: list[PriceChange] = []
    for resource, price in today.items():
        if price <= 0:
            continue
        lines = [_cost_line(evidence, choice, resource, today) for choice in choices]
        known = [line for line in lines if line is not None]
        if len(known) < len(lines):
            continue
        segments = [_price_segment(span, choices, known, price) for span in envelope(known)]
        changes.append(PriceChange(price=resource, today=price, segments=segments))
    return changes


def given_prices(evidence: Evidence) -> dict[PricedResource, float]:
    """Return the experiment's prices per hour: of a core, a GiB and a GPU, as far as they are given."""
    texts = evidence.spec.prices
    return {name: float(text) for name in _PRICED_RESOURCES if (text := getattr(texts, name)) is not None}


def _compared_choices(evidence: Evidence, chosen: Choice) -> list[Choice]:
    """Return the recommended spec, then the other specs that meet every constraint and measured no better."""
    ahead = judgement.better(evidence, chosen)
    others = [
        choice
        for key, choice in judgement.candidates(evidence).items()
        if key not in ahead and not ev.same(choice.settings, chosen.settings)
    ]
    return [chosen, *others]


def _cost_line(
    evidence: Evidence, choice: Choice, resource: PricedResource, today: Mapping[PricedResource, float]
) -> Line | None:
    """Return the cost of the same work with this spec over the price of one resource.

    The work is one unit of the objective: a request or token, or an hour of a replica or of a rate. None if
    the spec's objective or cost is unknown.
    """
    if choice.objective is None or choice.cost_per_hour is None or choice.objective.value <= 0:
        return None
    value = choice.objective.value
    is_cost = evidence.spec.objective.objective_metric_name in {"costAtRate", "cost"}
    cost_of_work = value if is_cost else 1 / value  # the other money objectives are work per cost
    replica_hours = cost_of_work / choice.cost_per_hour
    amount = amounts(evidence, choice, today)[resource]
    other_cost_per_hour = max(0.0, choice.cost_per_hour - amount * today[resource])
    return Line(base=other_cost_per_hour * replica_hours, slope=amount * replica_hours)


def amounts(
    evidence: Evidence, choice: Choice, today: Mapping[PricedResource, float]
) -> dict[PricedResource, float]:
    """Return the amounts of a replica in the units of the prices: cores, GiB, GPUs.

    Cores and memory are those of its Pod template. The GPUs, of which a share counts as a fraction, follow
    from the rest of its cost, as their form in the template depends on the mechanism.
    """
    row = next(row for row in evidence.rows if row.name == choice.trials[-1])
    resources = costing.amounts(row.spec.template.get("spec", {}).get("containers", []), Resources())
    cores, memory = float(resources.cpu), float(resources.memory) / _GIB
    rest = (choice.cost_per_hour or 0.0) - cores * today.get("cpu", 0.0) - memory * today.get("memory", 0.0)
    gpu = today.get("gpu", 0.0)
    return {"cpu": cores, "memory": memory, "gpu": max(0.0, rest / gpu) if gpu > 0 else 0.0}


def _price_segment(
    span: WinnerSpan, choices: Sequence[Choice], lines: Sequence[Line], today: float
) -> Segment:
    """Return a span of prices as a segment, with the factor at one of its prices.

    That price is today's where the span includes it, else the end of the span farther from today's. Twice the
    start replaces an infinite end, and half the end replaces a start at 0, where costs may be 0. At the
    nearer end the winner only equals that of the neighbouring span.
    """
    assert span.winner is not None
    if span.start <= today < span.end:
        at = today
    elif span.start > today:
        at = span.end if math.isfinite(span.end) else 2 * span.start
    else:
        at = span.start if span.start > 0 else span.end / 2
    ours, theirs = lines[0].at(at), lines[span.winner].at(at)
    winner = choices[span.winner]
    return Segment(
        start=span.start,
        end=span.end if math.isfinite(span.end) else None,
        trial=winner.trials[-1],
        settings=winner.settings,
        at=at,
        factor=ours / theirs if theirs > 0 else None,
    )


def bounds(evidence: Evidence, chosen: Choice) -> list[BoundChange]:
    """Return the winner over the bounds of each constraint."""
    rows = judgement.runnable(evidence)
    if chosen.spec is None or chosen.spec not in rows:
        return []
    recommended = rows[chosen.spec]
    others = [trials for key, trials in rows.items() if key != chosen.spec]
    return [_bound_change(evidence, [recommended, *others], k) for k in range(len(evidence.spec.constraints))]


def _bound_change(evidence: Evidence, specs: Sequence[Sequence[TrialRecord]], constraint: int) -> BoundChange:
    """Return the winners over the bounds of one constraint.

    Args:
        evidence: the experiment.
        specs: the complete trials of each spec, the recommended one first.
        constraint: index of the constraint.
    """
    today = ev.bound(evidence.spec.constraints[constraint]).bound
    spec_readings = [[readings(evidence, row, constraint) for row in trials] for trials in specs]
    recommended = log_score(spec_readings[0], today)
    compared = [i for i, spec in enumerate(spec_readings) if i == 0 or log_score(spec, today) <= recommended]
    compared_readings = [spec_readings[i] for i in compared]
    last_trials = [specs[i][-1] for i in compared]
    segments = [
        _bound_segment(span, compared_readings, last_trials, today) for span in staircase(compared_readings)
    ]
    return BoundChange(constraint=constraint, today=today, segments=segments)


def readings(evidence: Evidence, row: TrialRecord, constraint: int) -> list[BoundReading]:
    """Return a trial's readings of the constraint with this index, at the loads that meet all others."""
    constraints = evidence.spec.constraints
    bounds = [ev.bound(each).bound for each in constraints]
    timeout = evidence.settings.load.request_timeout  # latencies beyond it are unknown
    kept: list[BoundReading] = []
    for load in _load_points(evidence, row):
        objective = objective_value(
            evidence.spec.objective, load.window, row.spec.cost_per_hour, row.spec.batch
        )
        if objective is None or objective.value <= 0:
            continue
        value = load.needs[constraint]
        if not math.isfinite(value) or (constraints[constraint].metric != "errorRate" and value >= timeout):
            continue
        if all(
            need <= bound
            for i, (need, bound) in enumerate(zip(load.needs, bounds, strict=True))
            if i != constraint
        ):
            kept.append(BoundReading(value, evidence.score(objective.value)))
    return kept


def _load_points(evidence: Evidence, row: TrialRecord) -> list[LoadPoint]:
    """Return the loads of a trial with the bounds that they need.

    The result of a measured trial that may meet the constraints is one more load: the fitted curves may put
    that load beyond today's bounds, although the trial reports it as within them.
    """
    result = row.status.result
    windows = row.status.windows or ([result] if result is not None else [])
    if not windows:
        return []
    constraints = evidence.spec.constraints
    is_latency = evidence.spec.objective.objective_metric_name == "latency"  # maybe unconstrained
    loads = results.load_points(
        results.state_of(row.spec.load, constraints, windows, evidence.settings.load), every=is_latency
    )
    if result is None or row.status.reason != MEASURED or result.meets == "No":
        return loads
    needs = tuple(
        _needed_bound(measured_value(result, each.metric, each.percentile), ev.bound(each).bound)
        for each in constraints
    )
    return [*loads, LoadPoint(result, needs)]


def _needed_bound(value: Estimate | None, today: float) -> float:
    """Return the bound that a result needs: today's, or its value if larger; infinite without a value."""
    return math.inf if value is None else max(today, value.value)


def _bound_segment(
    span: WinnerSpan, specs: Sequence[SpecReadings], last_trials: Sequence[TrialRecord], today: float
) -> Segment:
    """Return a span of bounds as a segment, with the factor at one of its bounds.

    That bound is the largest reading of the span up to today's bound, as scores change only at readings; of a
    span beyond today's bound, its start.
    """
    end = span.end if math.isfinite(span.end) else None
    if span.winner is None:
        return Segment(start=span.start, end=end, trial="", settings=[], at=span.start)
    values = {reading.value for trials in specs for trial in trials for reading in trial}
    at = max(
        (value for value in values if span.start <= value < span.end and value <= today), default=span.start
    )
    ours, theirs = log_score(specs[0], at), log_score(specs[span.winner], at)
    winner = last_trials[span.winner]
    return Segment(
        start=span.start,
        end=end,
        trial=winner.name,
        settings=winner.spec.settings,
        at=at,
        factor=math.exp(theirs - ours) if ours > -math.inf else None,
    )
