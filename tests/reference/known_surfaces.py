"""Spaces with a known objective, and searches on them."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.search import next_decision
from tuner.search.decision_values import Confirm, Decision, Explore, Wait
from tuner.search.problem import Budget, Earlier, Problem, TrialObservation
from tuner.settings import SearchSettings


def grid(
    *axes: Sequence[float],
    log_bounds: tuple[float, ...] = (),
    ordered: tuple[bool, ...] | None = None,
    resource: tuple[bool, ...] | None = None,
    log_cost: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Problem:
    coordinates = np.array(list(itertools.product(*axes)), dtype=np.float64)
    ranks = np.array(list(itertools.product(*(range(len(axis)) for axis in axes))), dtype=np.int64)
    return Problem(
        coordinates=coordinates,
        ranks=ranks,
        ordered=ordered or (True,) * len(axes),
        resource=resource or (False,) * len(axes),
        log_cost=np.zeros(len(ranks)) if log_cost is None else log_cost(coordinates),
        log_bounds=log_bounds,
    )


@dataclass(frozen=True)
class KnownService:
    """A service over cores, batch size and memory in GiB, each as log2.

    A larger batch has more throughput and more latency, and needs more memory.
    """

    slope: float = 0.7
    saturation: float = 3.0
    bound: float | None = None
    """Bound of the latency, in seconds."""
    noise: float = 0.0

    @property
    def problem(self) -> Problem:
        return grid(
            (0.0, 1.0, 2.0, 3.0),
            (0.0, 1.0, 2.0, 3.0, 4.0),
            (-1.0, 0.0, 1.0),
            log_bounds=() if self.bound is None else (math.log(self.bound),),
            resource=(True, False, True),
            log_cost=lambda rows: np.log(2.0 ** rows[:, 0] + 0.2 * 2.0 ** rows[:, 2]),
        )

    def throughput(self, row: int) -> float:
        cpu, batch, _ = 2.0 ** self.problem.coordinates[row]
        return 100 * cpu**self.slope * batch / (batch + self.saturation)

    def boots(self, row: int) -> bool:
        _, batch, memory = 2.0 ** self.problem.coordinates[row]
        return bool(memory >= 0.5 + batch / 32)

    def latency(self, row: int) -> float:
        return 2.0 ** self.problem.coordinates[row][1] / self.throughput(row)

    def log_objective(self, row: int) -> float:
        return math.log(self.throughput(row)) - float(self.problem.log_cost[row])

    def feasible(self, row: int) -> bool:
        return self.boots(row) and (self.bound is None or self.latency(row) <= self.bound)

    @property
    def best(self) -> float:
        return max(self.log_objective(row) for row in range(self.problem.size) if self.feasible(row))

    def measure(self, row: int, rng: np.random.Generator, *, confirms: bool = False) -> TrialObservation:
        if not self.boots(row):
            return TrialObservation(row, cause="memory")
        margins = () if self.bound is None else (math.log(self.latency(row) / self.bound),)
        return TrialObservation(
            row,
            log_objective=self.log_objective(row) + rng.normal(0, self.noise)
            if self.noise
            else self.log_objective(row),
            noise=self.noise,
            margins=tuple(m + rng.normal(0, self.noise) if self.noise else m for m in margins),
            margin_noise=self.noise,
            seconds=20.0,
            confirms=confirms,
        )


@dataclass(frozen=True)
class PlayedSearch:
    """A finished search."""

    end: Decision
    observations: tuple[TrialObservation, ...]
    decisions: tuple[Decision, ...]


def play(
    service: KnownService,
    trials: int,
    *,
    parallelism: int = 1,
    seed: int = 1,
    earlier: Sequence[Earlier] = (),
    settings: SearchSettings | None = None,
    algorithm: str = "bayesian",
) -> PlayedSearch:
    """Run a search; trials of one decision end one after the other, the oldest first."""
    rng = np.random.default_rng(seed)
    observations: list[TrialObservation] = []
    pending: list[tuple[int, bool]] = []
    decisions: list[Decision] = []
    while True:
        decision = next_decision.decide(
            service.problem,
            observations,
            [row for row, _ in pending],
            Budget(trials, parallelism),
            earlier,
            settings=settings or replace(SearchSettings(), regret=0.0),
            seed=seed,
            algorithm=algorithm,
        )
        decisions.append(decision)
        if isinstance(decision, Explore | Confirm):
            pending += [(row, isinstance(decision, Confirm)) for row in decision.indices]
        elif not isinstance(decision, Wait):
            return PlayedSearch(decision, tuple(observations), tuple(decisions))
        row, confirms = pending.pop(0)
        observations.append(service.measure(row, rng, confirms=confirms))
