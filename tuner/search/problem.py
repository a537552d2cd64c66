"""The search problem as numbers: positions and costs of specs, and observations."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A finite space of n specs with d axes.

    Objectives are logarithms and are maximised. A constraint's margin is log(value / bound): met at 0 or
    less.
    """

    coordinates: Floats
    """(n, d): amounts or their log2, as the axis's scale is linear or log; categories as 0, 1, 2, ..."""
    ranks: Integers
    """(n, d): the position of each value among its axis's values."""
    ordered: tuple[bool, ...]
    """(d,): False for axes whose values have no order."""
    resource: tuple[bool, ...]
    """(d,): True for resources: a spec with less of them than one that ran out of memory does so, too."""
    log_cost: Floats
    """(n,): log of the price of an hour of one replica; zeros where there are no prices."""
    log_bounds: tuple[float, ...] = ()
    """Logarithm of each constraint's bound, in the unit of its metric."""
    expected: Floats | None = None
    """(n,): the log objective expected before any measurement, up to a constant; None expects the same
    everywhere."""
    expected_margins: Floats | None = None
    """(n, constraints): the margins expected before any measurement; None expects 0 everywhere."""

    @property
    def constraints(self) -> int:
        """Number of constraints."""
        return len(self.log_bounds)

    @property
    def size(self) -> int:
        """Number of specs."""
        return len(self.coordinates)


def features(problem: Problem) -> Floats:
    """Return (n, f) coordinates from 0 to 1: ordered axes on their scale, a column per value of the others.

    With unordered axes, the price is one more column: values without an order are similar at a similar price.
    """
    columns: list[Floats] = []
    for axis, ordered in enumerate(problem.ordered):
        values = problem.coordinates[:, axis]
        if ordered:
            columns.append(_unit(values))
        else:
            # Two different values differ by 0.5 in two columns: they are 0.7 apart, the ends of an ordered
            # axis 1.
            columns += [np.where(values == value, 0.5, 0.0) for value in np.unique(values)]
    if not all(problem.ordered) and np.ptp(problem.log_cost) > 0:
        columns.append(_unit(problem.log_cost))
    return np.array(columns).T


def _unit(values: Floats) -> Floats:
    span = float(np.ptp(values))
    return np.asarray((values - values.min()) / (span if span > 0 else 1.0))


Cause = Literal["", "memory", "boot", "crash", "timeout"]
"""Why a spec does not run; empty if it runs."""


@dataclass(frozen=True)
class TrialObservation:
    """One ended trial of one spec."""

    index: int
    """The spec's row."""
    cause: Cause = ""
    log_objective: float | None = None
    """None if the spec does not run, or breaks a constraint at its lowest load."""
    noise: float = 0.0
    """Standard deviation of `log_objective`, from its interval; 0 if unknown."""
    margins: tuple[float, ...] = ()
    """One for each constraint; empty if the spec does not run."""
    margin_noise: float = 0.0
    """Standard deviation of the margins; 0 if unknown."""
    scatter: float = 0.0
    """Standard deviation of the margins between complete windows of the trial; 0 if unknown. A trial of
    several windows is more precise than one window."""
    seconds: float = 0.0
    """Duration of the trial, start included."""
    confirms: bool = False
    """Whether it repeats a winner or runner-up."""
    censored: bool = False
    """Whether it was stopped early: the objective is at most this, or a margin at least this."""

    @property
    def boots(self) -> bool:
        """Whether the spec runs at all."""
        return not self.cause

    @property
    def repeat_noise(self) -> float:
        """Standard deviation of another measurement of the margins."""
        return self.scatter or self.margin_noise

    @property
    def feasible(self) -> bool:
        """Whether it runs and met every constraint."""
        return self.boots and all(margin <= 0 for margin in self.margins)


@dataclass(frozen=True)
class Budget:
    """The budget of a search."""

    trials: int
    """In total, including the ended and the running ones."""
    parallelism: int = 1


@dataclass(frozen=True)
class Earlier:
    """A finished experiment of a similar service, in this space's axes."""

    name: str
    problem: Problem
    """With only the constraints that this search has too."""
    observations: tuple[TrialObservation, ...]
    constraints: tuple[int, ...] | None = None
    """The index of each of `problem`'s constraints in this search; None if they are the same in the same
    order."""
