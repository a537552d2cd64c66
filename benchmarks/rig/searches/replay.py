"""Searches replayed on measured surfaces: a trial returns the measured value with the measurement's noise."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.searches.surfaces import MeasuredSurface
from tuner.search import algorithms, transfer
from tuner.search.decision_values import Confirm, Explore, Impossible, Recommend
from tuner.search.next_decision import SearchStep
from tuner.search.problem import Budget, Earlier, Floats, TrialObservation
from tuner.settings import SearchSettings

WINDOWS = 9
"""A trial knows its own noise as well as the spread of so many windows tells it."""
TO_THE_END = replace(SearchSettings(), regret=0.0, hopeless=0.0)
"""Spends its whole budget, as the baselines do."""


@dataclass(frozen=True)
class Noisy:
    """A surface whose measurements vary."""

    surface: MeasuredSurface
    seed: int
    deviations: Floats
    """Relative standard deviations, of which each spec has one."""

    @property
    def search_seed(self) -> int:
        """Differs for each surface: with a common seed, luck would be common to all surfaces."""
        return zlib.crc32(f"{self.surface.name} {self.seed}".encode())

    @property
    def deviation(self) -> Floats:
        """(n,): of the logarithm of each spec's measurements."""
        return np.random.default_rng([self.search_seed, 1]).choice(self.deviations, self.surface.problem.size)

    def measure(self, row: int, time: int, *, confirms: bool) -> TrialObservation:
        """Return a trial of this spec; the same time and seed give the same trial."""
        rng = np.random.default_rng([self.search_seed, 2, time, row])
        if not self.surface.boots[row]:
            return TrialObservation(row, cause="memory", confirms=confirms)
        noise = float(self.deviation[row])
        known = noise * math.sqrt(rng.chisquare(WINDOWS - 1) / (WINDOWS - 1))
        margins = self.surface.margins[row] + rng.normal(0, noise, self.surface.margins.shape[1])
        return TrialObservation(
            row,
            log_objective=float(self.surface.log_objective[row] + rng.normal(0, noise)),
            noise=known,
            margins=tuple(float(margin) for margin in margins),
            margin_noise=known,
            seconds=1.0,
            confirms=confirms,
        )


@dataclass(frozen=True)
class SearchRun:
    """A search to its end."""

    recommended: int | None
    course: tuple[int | None, ...]
    """What would have been recommended after each trial."""
    observations: tuple[TrialObservation, ...]
    stated_regret: float
    """The regret that the search reported at its end."""


def play(
    noisy: Noisy,
    trials: int,
    settings: SearchSettings = TO_THE_END,
    models: Sequence[transfer.EarlierModel] = (),
) -> SearchRun:
    """Run our search, one trial after the other."""
    problem = noisy.surface.problem
    observations: list[TrialObservation] = []
    course: list[int | None] = []
    while True:
        prior = transfer.weigh(problem, models, observations)
        search = SearchStep(
            problem, tuple(observations), (), Budget(trials), prior, settings, noisy.search_seed
        )
        decision = search.decide()
        if isinstance(decision, Recommend | Impossible):
            recommended = decision.index if isinstance(decision, Recommend) else None
            stated = decision.expected_regret if isinstance(decision, Recommend) else 1.0
            return SearchRun(recommended, (*course[1:], recommended), tuple(observations), stated)
        assert isinstance(decision, Explore | Confirm)
        for row in decision.indices:
            course.append(decision.best)
            confirms = isinstance(decision, Confirm)
            observations.append(noisy.measure(row, len(observations), confirms=confirms))


def play_baseline(noisy: Noisy, trials: int, propose: algorithms.Propose, quantile: float) -> SearchRun:
    """Run another algorithm; it recommends the best measured spec, with the same allowance for noise."""
    problem = noisy.surface.problem
    observations: list[TrialObservation] = []
    course: list[int | None] = []
    for time in range(trials):
        unmeasured = np.setdiff1d(np.arange(problem.size), [seen.index for seen in observations])
        (row,) = propose(problem, observations, unmeasured, 1, noisy.search_seed)
        observations.append(noisy.measure(row, time, confirms=False))
        course.append(_best_measured(observations, quantile))
    return SearchRun(course[-1], tuple(course), tuple(observations), 1.0)


def _best_measured(observations: Sequence[TrialObservation], quantile: float) -> int | None:
    safe = [
        seen
        for seen in observations
        if seen.boots and all(margin + quantile * seen.margin_noise <= 0 for margin in seen.margins)
    ]
    best = max(safe, key=lambda seen: seen.log_objective or 0.0, default=None)
    return best.index if best is not None else None


def as_earlier(surface: MeasuredSurface, run: SearchRun) -> Earlier:
    """Return a search as one that others learn from."""
    return Earlier(surface.name, surface.problem, run.observations)


def ratio(surface: MeasuredSurface, row: int | None, *, smoothed: bool) -> float:
    """Return the true value of a spec over the optimum, at most 1; 0 if it breaks a constraint or is None.

    Args:
        surface: without noise.
        row: the spec.
        smoothed: whether the optimum is that of the smoothed surface, which single points do not make.
    """
    feasible = surface.feasible
    if row is None or not feasible[row]:
        return 0.0
    values = surface.smoothed if smoothed else surface.log_objective
    best = float(values[feasible].max())
    return min(1.0, math.exp(float(surface.log_objective[row]) - best))


def fresh_excess(noisy: Noisy, row: int | None) -> float:
    """Return the largest excess over a constraint in one further measurement; 0 if none."""
    if row is None or not noisy.surface.margins.shape[1]:
        return 0.0
    rng = np.random.default_rng([noisy.search_seed, 3, row])
    margins = noisy.surface.margins[row] + rng.normal(0, noisy.deviation[row], noisy.surface.margins.shape[1])
    return max(0.0, math.exp(float(margins.max())) - 1.0)
