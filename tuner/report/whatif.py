"""From the evidence to what would change the answer: each spec as a line over one price, each load as a reading of one bound.

Compared with the recommended spec are only those that are not better already: why those are not recommended is said elsewhere, and
no price has to change for them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from serving.resources.inference import Resources
from serving.resources.trial import Estimate
from tuner.constraints import measured_value
from tuner.load.level_search import results
from tuner.load.level_search.state import LoadPoint
from tuner.objective import objective_value
from tuner.report import evidence as ev
from tuner.report import judgement
from tuner.report.evidence import Evidence, Key, Row
from tuner.report.schema import BoundChange, Choice, PriceChange, Segment
from tuner.report.sensitivity import BoundReading, Line, Span, envelope, staircase
from tuner.report.sensitivity import worth as worth_at
from tuner.specs import prices as costing

_MONEY = frozenset({"throughputPerCost", "tokensPerCost", "costAtRate", "cost"})
_GIB = 2.0**30
Priced = Literal["cpu", "memory", "gpu"]
_PRICED: tuple[Priced, ...] = ("cpu", "memory", "gpu")


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


def _in_order(rows: Mapping[Key, Sequence[Row]], chosen: Choice) -> list[Key]:
    first = [key for key, found in rows.items() if ev.same(found[-1].spec.settings, chosen.settings)]
    return first + [key for key in rows if key not in first]


def _bound(
    evidence: Evidence, rows: Mapping[Key, Sequence[Row]], keys: Sequence[Key], constraint: int
) -> BoundChange | None:
    today = ev.bound(evidence.spec.constraints[constraint]).bound
    specs = [[readings(evidence, row, constraint) for row in rows[key]] for key in keys]
    if not specs:
        return None
    ours = worth_at(specs[0], today)
    field = [i for i, spec in enumerate(specs) if i == 0 or worth_at(spec, today) <= ours]
    entered = [specs[i] for i in field]
    last = [rows[keys[i]][-1] for i in field]
    segments = [_allowed(span, entered, last, today) for span in staircase(entered)]
    return BoundChange(constraint=constraint, today=today, segments=segments)


def readings(evidence: Evidence, row: Row, constraint: int) -> list[BoundReading]:
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


def _reached(evidence: Evidence, row: Row) -> list[LoadPoint]:
    """Return the loads of a trial; the one that was its result is within today's bounds, however its curves are bent."""
    result = row.status.result
    windows = row.status.windows or ([result] if result is not None else [])
    if not windows:
        return []
    asked = evidence.spec.constraints
    every = evidence.spec.objective.objective_metric_name == "latency"
    found = results.reached(results.again(row.spec.load, asked, windows, evidence.settings.load), every=every)
    if result is None or row.status.reason != ev.FULL or result.meets == "No":
        return found
    needs = tuple(
        _within(measured_value(result, one.metric, one.percentile), ev.bound(one).bound) for one in asked
    )
    return [*found, LoadPoint(result, needs)]


def _within(seen: Estimate | None, bound: float) -> float:
    """Return the least bound with which a result is one: what was seen needs no more than was allowed, where it was within that."""
    return math.inf if seen is None else max(bound, seen.value)


def _allowed(
    span: Span, specs: Sequence[Sequence[Sequence[BoundReading]]], rows: Sequence[Row], today: float
) -> Segment:
    """Return a segment; how much better its winner is, is said at the bound in it that a load needs and is nearest to today."""
    end = span.end if math.isfinite(span.end) else None
    if span.winner is None:
        return Segment(start=span.start, end=end, trial="", settings=[], at=span.start)
    seen = [
        r.value for trials in specs for trial in trials for r in trial if span.start <= r.value < span.end
    ]
    at = max((value for value in seen if value <= today), default=span.start)
    ours, theirs = worth_at(specs[0], at), worth_at(specs[span.winner], at)
    row = rows[span.winner]
    return Segment(
        start=span.start,
        end=end,
        trial=row.name,
        settings=row.spec.settings,
        at=at,
        factor=math.exp(theirs - ours) if ours > -math.inf else None,
    )
