"""What is searched, as numbers: where each spec lies, what it costs, and what was observed. It knows no objects of the API."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A finite space of n specs with d axes.

    Objectives are logarithms and are maximised. A constraint's margin is log(value / bound): met at 0 or less.
    """

    coordinates: Floats
    """(n, d): each axis on its natural scale; categories as 0, 1, 2, ..."""
    ranks: Integers
    """(n, d): the position of each value among its axis's values."""
    ordered: tuple[bool, ...]
    """(d,): False for axes whose values have no order."""
    resource: tuple[bool, ...]
    """(d,): True where a greater value gives the replica more of something: what ran out of it will with less."""
    log_cost: Floats
    """(n,): log of the price of an hour of one replica; zeros where there are no prices."""
    log_bounds: tuple[float, ...] = ()
    """Of each constraint: the logarithm of its bound, in whatever unit others of its metric have."""
    expected: Floats | None = None
    """(n,): what the log objective is expected to be before anything is measured, up to a constant; the same everywhere if it is not given."""
    expected_margins: Floats | None = None
    """(n, constraints): the same of each margin."""

    @property
    def constraints(self) -> int:
        """How many there are."""
        return len(self.log_bounds)

    @property
    def size(self) -> int:
        """Specs in the space."""
        return len(self.coordinates)


def features(problem: Problem) -> Floats:
    """Return (n, f) coordinates between 0 and 1: ordered axes on their scale, a column for each value of the others.

    Where an axis has no order, the price says something of how its values compare.
    """
    columns: list[Floats] = []
    for axis, ordered in enumerate(problem.ordered):
        values = problem.coordinates[:, axis]
        if ordered:
            columns.append(_unit(values))
        else:
            columns += [np.where(values == value, 0.5, 0.0) for value in np.unique(values)]
    if not all(problem.ordered) and np.ptp(problem.log_cost) > 0:
        columns.append(_unit(problem.log_cost))
    return np.array(columns).T


def _unit(values: Floats) -> Floats:
    span = float(np.ptp(values))
    return np.asarray((values - values.min()) / (span if span > 0 else 1.0))


Cause = Literal["", "memory", "boot", "crash", "timeout"]
"""Why a spec does not run; empty for one that does."""


@dataclass(frozen=True)
class Observation:
    """One trial that is over, of one spec."""

    index: int
    """The spec's row."""
    cause: Cause = ""
    log_objective: float | None = None
    """None where the spec does not run."""
    noise: float = 0.0
    """Standard deviation of `log_objective`, from its interval; 0 where it is not known."""
    margins: tuple[float, ...] = ()
    """One for each constraint; empty where the spec does not run."""
    margin_noise: float = 0.0
    """Standard deviation of the margins; 0 where it is not known."""
    scatter: float = 0.0
    """That of another measurement of them, where a trial is surer than that; 0 where it is one measurement itself."""
    seconds: float = 0.0
    """What the trial took, start included."""
    confirms: bool = False
    """Measured to confirm a winner or its runner-up."""
    censored: bool = False
    """Stopped early: the objective is at most this, or a margin at least this."""

    @property
    def boots(self) -> bool:
        """Whether the spec runs at all."""
        return not self.cause

    @property
    def again(self) -> float:
        """Standard deviation of another measurement of the margins."""
        return self.scatter or self.margin_noise

    @property
    def feasible(self) -> bool:
        """Whether it runs and was seen to meet every constraint."""
        return self.boots and all(margin <= 0 for margin in self.margins)


@dataclass(frozen=True)
class Budget:
    """What may still be spent."""

    trials: int
    """In all, those that are over and those that run included."""
    parallelism: int = 1


@dataclass(frozen=True)
class Earlier:
    """A finished experiment of a similar service, in this space's axes."""

    name: str
    problem: Problem
    """Of its constraints, those that are among this search's too: what it did not have to meet says nothing of them."""
    observations: tuple[Observation, ...]
    constraints: tuple[int, ...] | None = None
    """Which of this search's constraints each of `problem`'s is; where it is not given, they are the same in the same order."""
