"""What would change the answer: the prices and the bounds at which another measured spec wins. Exact, from the measurements.

Nothing is predicted here. Every money-based objective is, for one price p and the rest as it is, a spec's line `base + slope * p`
to be minimised (cost of an hour, of a request, at a rate), so the winners over all prices are the lower envelope of lines; over the
bounds of a constraint, which specs are allowed, and at which load, changes only where a load of a trial needs that bound.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.resources.inference import Resources
from serving.resources.trial import Estimate
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
    """What one spec costs, as a function of one price: `base + slope * price`, both not negative."""

    base: float
    slope: float

    def at(self, price: float) -> float:
        """Return the cost at this price."""
        return self.base + self.slope * price


@dataclass(frozen=True)
class BoundReading:
    """One thing that a spec was seen to do: a value of the constraint in question, and how good it was then."""

    value: float
    """Of the constraint's metric, in its unit."""
    score: float
    """Of the objective; more is better."""


@dataclass(frozen=True)
class Span:
    """From `start` (inclusive) up to `end` this candidate wins; None where none is allowed. `end` is inf for the last one."""

    start: float
    end: float
    winner: int | None


def envelope(lines: Sequence[Line]) -> list[Span]:
    """Return which line is least at every price from 0 on, in the order of prices.

    At equal cost the earlier candidate is kept, as long as no other is cheaper right behind that price.
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
    """Return where the current line is first undercut, and by which: of several the flattest, which stays least behind it."""
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
    """Return which spec wins at every bound from 0 on.

    Args:
        specs: for each spec its trials, for each trial what was read in its windows, without those that break another constraint.
            A spec is allowed at a bound if each of its trials has a reading within it, and is worth the geometric mean
            of its trials' best ones; a spec without trials never is.
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
    """Return the logarithm of a spec's score at this bound; -inf where it is not allowed."""
    logs: list[float] = []
    for trial in trials:
        within = [reading.score for reading in trial if reading.value <= bound and reading.score > 0]
        if not within:
            return -math.inf
        logs.append(math.log(max(within)))
    return sum(logs) / len(logs) if logs else -math.inf


def prices(evidence: Evidence, chosen: Choice) -> list[PriceChange]:
    """Return who wins at every value of each price that is given; nothing where the objective does not count money."""
    today = given(evidence)
    if evidence.spec.objective.objective_metric_name not in _MONEY:
        return []
    field = _field(evidence, chosen)
    found: list[PriceChange] = []
    for name, price in today.items():
        if price <= 0:
            continue
        lines = [_line(evidence, choice, name, today) for choice in field]
        if any(line is None for line in lines):
            continue
        known = [line for line in lines if line is not None]
        segments = [_priced(span, field, known, price) for span in envelope(known)]
        found.append(PriceChange(price=name, today=price, segments=segments))
    return found


def given(evidence: Evidence) -> dict[Priced, float]:
    """Return the prices that the experiment gives, per hour."""
    asked = evidence.spec.prices
    return {name: float(text) for name in _PRICED if (text := getattr(asked, name)) is not None}


def _field(evidence: Evidence, chosen: Choice) -> list[Choice]:
    """Return the recommended spec, then those that it is better than."""
    ahead = judgement.better(evidence, chosen)
    others = [
        choice
        for key, choice in judgement.candidates(evidence).items()
        if key not in ahead and not ev.same(choice.settings, chosen.settings)
    ]
    return [chosen, *others]


def _line(evidence: Evidence, choice: Choice, name: Priced, today: Mapping[Priced, float]) -> Line | None:
    """Return what the work costs with this spec, as a function of one price."""
    if choice.objective is None or choice.cost_per_hour is None or choice.objective.value <= 0:
        return None
    value = choice.objective.value
    cost = value if evidence.spec.objective.objective_metric_name in {"costAtRate", "cost"} else 1 / value
    hours = cost / choice.cost_per_hour
    slope = amounts(evidence, choice, today)[name]
    base = max(0.0, choice.cost_per_hour - slope * today[name])
    return Line(base * hours, slope * hours)


def amounts(evidence: Evidence, choice: Choice, today: Mapping[Priced, float]) -> dict[Priced, float]:
    """Return how much of each priced thing a replica has: cores, GiB, shares of a GPU.

    Its template says what it has of cores and memory. What of a GPU is what remains of its cost, as how a share is written into a
    template depends on the mechanism.
    """
    row = next(row for row in evidence.rows if row.name == choice.trials[-1])
    has = costing.amounts(row.spec.template.get("spec", {}).get("containers", []), Resources())
    cores, memory = float(has.cpu), float(has.memory) / _GIB
    rest = (choice.cost_per_hour or 0.0) - cores * today.get("cpu", 0.0) - memory * today.get("memory", 0.0)
    gpu = today.get("gpu", 0.0)
    return {"cpu": cores, "memory": memory, "gpu": max(0.0, rest / gpu) if gpu > 0 else 0.0}


def _priced(span: Span, field: Sequence[Choice], lines: Sequence[Line], today: float) -> Segment:
    """Return a segment; how much better its winner is, is said at its far end as seen from today, or at twice its beginning."""
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
    """Return who wins at every bound of each constraint, among what was measured."""
    rows = judgement.runnable(evidence)
    keys = _in_order(rows, chosen)
    if chosen.spec not in rows:
        return []
    return [
        change for k in range(len(evidence.spec.constraints)) if (change := _bound(evidence, rows, keys, k))
    ]


def _in_order(rows: Mapping[Key, Sequence[TrialRecord]], chosen: Choice) -> list[Key]:
    first = [key for key, found in rows.items() if ev.same(found[-1].spec.settings, chosen.settings)]
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
    """Return what a trial's loads need of one constraint, by its curves, of those loads that meet every other one."""
    asked = evidence.spec.constraints
    bounds = [ev.bound(one).bound for one in asked]
    unseen = evidence.settings.load.request_timeout  # a request is given up there: its latency is not known
    found: list[BoundReading] = []
    for one in _reached(evidence, row):
        objective = objective_value(
            evidence.spec.objective, one.window, row.spec.cost_per_hour, row.spec.batch
        )
        if objective is None or objective.value <= 0:
            continue
        value = one.needs[constraint]
        if not math.isfinite(value) or (asked[constraint].metric != "errorRate" and value >= unseen):
            continue
        if all(
            need <= most
            for i, (need, most) in enumerate(zip(one.needs, bounds, strict=True))
            if i != constraint
        ):
            found.append(BoundReading(value, evidence.score(objective.value)))
    return found


def _reached(evidence: Evidence, row: TrialRecord) -> list[LoadPoint]:
    """Return the loads of a trial; the one that was its result is within today's bounds, however its curves are bent."""
    result = row.status.result
    windows = row.status.windows or ([result] if result is not None else [])
    if not windows:
        return []
    asked = evidence.spec.constraints
    every = evidence.spec.objective.objective_metric_name == "latency"
    found = results.reached(results.again(row.spec.load, asked, windows, evidence.settings.load), every=every)
    if result is None or row.status.reason != MEASURED or result.meets == "No":
        return found
    needs = tuple(
        _within(measured_value(result, one.metric, one.percentile), ev.bound(one).bound) for one in asked
    )
    return [*found, LoadPoint(result, needs)]


def _within(seen: Estimate | None, bound: float) -> float:
    """Return the least bound with which a result is one: what was seen needs no more than was allowed, where it was within that."""
    return math.inf if seen is None else max(bound, seen.value)


def _allowed(
    span: Span, specs: Sequence[Sequence[Sequence[BoundReading]]], rows: Sequence[TrialRecord], today: float
) -> Segment:
    """Return a segment; how much better its winner is, is said at the bound in it that a load needs and is nearest to today."""
    end = span.end if math.isfinite(span.end) else None
    if span.winner is None:
        return Segment(start=span.start, end=end, trial="", settings=[], at=span.start)
    seen = [
        r.value for trials in specs for trial in trials for r in trial if span.start <= r.value < span.end
    ]
    at = max((value for value in seen if value <= today), default=span.start)
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
