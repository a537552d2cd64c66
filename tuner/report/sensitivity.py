"""The sensitivity of the answer: the prices and bounds at which another measured spec wins.

Nothing is predicted. Over one price p, every money objective is a line `base + slope * p` to minimise, so the
winners are the lower envelope of the lines. Over the bounds of a constraint, the winner changes only at the
bounds that the loads of trials need. Specs with a better measurement than the recommended one are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
from tuner.trial_record import MEASURED, Key, TrialRecord

_MONEY = frozenset({"throughputPerCost", "tokensPerCost", "costAtRate", "cost"})
_GIB = 2.0**30
Priced = Literal["cpu", "memory", "gpu"]
_PRICED: tuple[Priced, ...] = ("cpu", "memory", "gpu")


@dataclass(frozen=True)
class Line:
    """The cost of a spec over one price: `base + slope * price`, both not negative."""

    base: float
    slope: float

    def at(self, price: float) -> float:
        """Return the cost at this price."""
        return self.base + self.slope * price


@dataclass(frozen=True)
class BoundReading:
    """A load of a trial: its value of the constraint, and its score."""

    value: float
    """In the unit of the constraint."""
    score: float
    """More is better."""


@dataclass(frozen=True)
class Span:
    """An interval [start, end) with its winner; None if no spec is allowed. The last `end` is infinite."""

    start: float
    end: float
    winner: int | None


def envelope(lines: Sequence[Line]) -> list[Span]:
    """Return the least line at every price from 0 on, in the order of prices.

    At equal cost the winner stays, unless another is cheaper right after that price.
    """
    if not lines:
        return []
    current = min(range(len(lines)), key=lambda i: (lines[i].base, lines[i].slope, i))
    spans: list[Span] = []
    price = 0.0
    while True:
        follower = _next(lines, current)
        if follower is None:
            return [*spans, Span(price, math.inf, current)]
        crossing, winner = follower
        if crossing > price:
            spans.append(Span(price, crossing, current))
            price = crossing
        current = winner


def _next(lines: Sequence[Line], current: int) -> tuple[float, int] | None:
    """Return the first crossing with a cheaper line; of several at one price, the flattest."""
    here = lines[current]
    crossings = [
        ((line.base - here.base) / (here.slope - line.slope), line.slope, i)
        for i, line in enumerate(lines)
        if line.slope < here.slope
    ]
    finite = [crossing for crossing in crossings if math.isfinite(crossing[0])]
    if not finite:
        return None
    price, _, winner = min(finite)
    return price, winner


def staircase(specs: Sequence[Sequence[Sequence[BoundReading]]]) -> list[Span]:
    """Return the winner at every bound from 0 on.

    Args:
        specs: the readings of each trial of each spec, without those that break another constraint. A spec is
            allowed at a bound if each of its trials has a reading within it; its score is the geometric mean
            of their best ones.
    """
    bounds = sorted({reading.value for trials in specs for trial in trials for reading in trial})
    spans = [Span(0.0, math.inf, None)]
    for bound in bounds:
        winner = _best(specs, bound)
        if winner != spans[-1].winner:
            last = spans.pop()
            if bound > last.start:
                spans.append(Span(last.start, bound, last.winner))
            spans.append(Span(bound, math.inf, winner))
    return spans


def _best(specs: Sequence[Sequence[Sequence[BoundReading]]], bound: float) -> int | None:
    scores = [(log_score(trials, bound), -i) for i, trials in enumerate(specs)]
    best = max(scores, default=(-math.inf, 0))
    return -best[1] if best[0] > -math.inf else None


def log_score(trials: Sequence[Sequence[BoundReading]], bound: float) -> float:
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
    today = given(evidence)
    if evidence.spec.objective.objective_metric_name not in _MONEY:
        return []
    field = _field(evidence, chosen)
    changes: list[PriceChange] = []
    for name, price in today.items():
        if price <= 0:
            continue
        lines = [_line(evidence, choice, name, today) for choice in field]
        if any(line is None for line in lines):
            continue
        known = [line for line in lines if line is not None]
        segments = [_priced(span, field, known, price) for span in envelope(known)]
        changes.append(PriceChange(price=name, today=price, segments=segments))
    return changes


def given(evidence: Evidence) -> dict[Priced, float]:
    """Return the experiment's prices per hour."""
    given_prices = evidence.spec.prices
    return {name: float(text) for name in _PRICED if (text := getattr(given_prices, name)) is not None}


def _field(evidence: Evidence, chosen: Choice) -> list[Choice]:
    """Return the recommended spec, then the candidates that it is better than."""
    ahead = judgement.better(evidence, chosen)
    others = [
        choice
        for key, choice in judgement.candidates(evidence).items()
        if key not in ahead and not ev.same(choice.settings, chosen.settings)
    ]
    return [chosen, *others]


def _line(evidence: Evidence, choice: Choice, name: Priced, today: Mapping[Priced, float]) -> Line | None:
    """Return the cost of the work with this spec over one price."""
    if choice.objective is None or choice.cost_per_hour is None or choice.objective.value <= 0:
        return None
    value = choice.objective.value
    cost = value if evidence.spec.objective.objective_metric_name in {"costAtRate", "cost"} else 1 / value
    hours = cost / choice.cost_per_hour
    slope = amounts(evidence, choice, today)[name]
    base = max(0.0, choice.cost_per_hour - slope * today[name])
    return Line(base * hours, slope * hours)


def amounts(evidence: Evidence, choice: Choice, today: Mapping[Priced, float]) -> dict[Priced, float]:
    """Return the priced amounts of a replica: cores, GiB, shares of a GPU.

    Cores and memory are those of its template. The share of a GPU follows from the rest of its cost, as the
    template's form of it depends on the mechanism.
    """
    row = next(row for row in evidence.rows if row.name == choice.trials[-1])
    resources = costing.amounts(row.spec.template.get("spec", {}).get("containers", []), Resources())
    cores, memory = float(resources.cpu), float(resources.memory) / _GIB
    rest = (choice.cost_per_hour or 0.0) - cores * today.get("cpu", 0.0) - memory * today.get("memory", 0.0)
    gpu = today.get("gpu", 0.0)
    return {"cpu": cores, "memory": memory, "gpu": max(0.0, rest / gpu) if gpu > 0 else 0.0}


def _priced(span: Span, field: Sequence[Choice], lines: Sequence[Line], today: float) -> Segment:
    """Return a segment, with the factor at its end far from today's price, or at twice its start."""
    assert span.winner is not None
    if span.start <= today < span.end:
        at = today
    elif span.start > today:
        at = span.end if math.isfinite(span.end) else 2 * span.start
    else:
        at = span.start if span.start > 0 else span.end / 2
    ours, theirs = lines[0].at(at), lines[span.winner].at(at)
    winner = field[span.winner]
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
    keys = _in_order(rows, chosen)
    if chosen.spec not in rows:
        return []
    return [
        change for k in range(len(evidence.spec.constraints)) if (change := _bound(evidence, rows, keys, k))
    ]


def _in_order(rows: Mapping[Key, Sequence[TrialRecord]], chosen: Choice) -> list[Key]:
    first = [key for key, trials in rows.items() if ev.same(trials[-1].spec.settings, chosen.settings)]
    return first + [key for key in rows if key not in first]


def _bound(
    evidence: Evidence, rows: Mapping[Key, Sequence[TrialRecord]], keys: Sequence[Key], constraint: int
) -> BoundChange | None:
    today = ev.bound(evidence.spec.constraints[constraint]).bound
    specs = [[readings(evidence, row, constraint) for row in rows[key]] for key in keys]
    if not specs:
        return None
    ours = log_score(specs[0], today)
    field = [i for i, spec in enumerate(specs) if i == 0 or log_score(spec, today) <= ours]
    entered = [specs[i] for i in field]
    last = [rows[keys[i]][-1] for i in field]
    segments = [_allowed(span, entered, last, today) for span in staircase(entered)]
    return BoundChange(constraint=constraint, today=today, segments=segments)


def readings(evidence: Evidence, row: TrialRecord, constraint: int) -> list[BoundReading]:
    """Return a trial's readings of one constraint, at the loads that meet all others."""
    constraints = evidence.spec.constraints
    bounds = [ev.bound(each).bound for each in constraints]
    timeout = evidence.settings.load.request_timeout  # latencies beyond it are unknown
    kept: list[BoundReading] = []
    for load in _reached(evidence, row):
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


def _reached(evidence: Evidence, row: TrialRecord) -> list[LoadPoint]:
    """Return the loads of a trial; its result counts as within today's bounds, even against the curves."""
    result = row.status.result
    windows = row.status.windows or ([result] if result is not None else [])
    if not windows:
        return []
    constraints = evidence.spec.constraints
    every = evidence.spec.objective.objective_metric_name == "latency"
    loads = results.load_points(
        results.state_of(row.spec.load, constraints, windows, evidence.settings.load), every=every
    )
    if result is None or row.status.reason != MEASURED or result.meets == "No":
        return loads
    needs = tuple(
        _needed(measured_value(result, each.metric, each.percentile), ev.bound(each).bound)
        for each in constraints
    )
    return [*loads, LoadPoint(result, needs)]


def _needed(value: Estimate | None, bound: float) -> float:
    """Return the least bound that a result needs, which is at least today's; infinite without a value."""
    return math.inf if value is None else max(bound, value.value)


def _allowed(
    span: Span, specs: Sequence[Sequence[Sequence[BoundReading]]], rows: Sequence[TrialRecord], today: float
) -> Segment:
    """Return a segment, with the factor at the needed bound that is nearest to today's."""
    end = span.end if math.isfinite(span.end) else None
    if span.winner is None:
        return Segment(start=span.start, end=end, trial="", settings=[], at=span.start)
    values = [
        r.value for trials in specs for trial in trials for r in trial if span.start <= r.value < span.end
    ]
    at = max((value for value in values if value <= today), default=span.start)
    ours, theirs = log_score(specs[0], at), log_score(specs[span.winner], at)
    row = rows[span.winner]
    return Segment(
        start=span.start,
        end=end,
        trial=row.name,
        settings=row.spec.settings,
        at=at,
        factor=math.exp(theirs - ours) if ours > -math.inf else None,
    )
