"""What would change the answer: the prices and the bounds at which another measured spec wins. Exact, from the measurements.

Nothing is predicted here. Every money-based objective is, for one price p and the rest as it is, a spec's line `base + slope * p`
to be minimised (cost of an hour, of a request, at a rate), so the winners over all prices are the lower envelope of lines; over the
bounds of a constraint, which specs are allowed, and at which load, changes only where a load of a trial needs that bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
    scores = [(worth(trials, bound), -i) for i, trials in enumerate(specs)]
    best = max(scores, default=(-math.inf, 0))
    return -best[1] if best[0] > -math.inf else None


def worth(trials: Sequence[Sequence[BoundReading]], bound: float) -> float:
    """Return the logarithm of a spec's score at this bound; -inf where it is not allowed."""
    logs: list[float] = []
    for trial in trials:
        within = [reading.score for reading in trial if reading.value <= bound and reading.score > 0]
        if not within:
            return -math.inf
        logs.append(math.log(max(within)))
    return sum(logs) / len(logs) if logs else -math.inf
