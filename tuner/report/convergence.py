"""How the search converged: the best spec and the expected regret after each trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving import errors
from tuner.observation import problem_of
from tuner.report.evidence import Evidence
from tuner.report.schema import Choice, Step
from tuner.search import pruning, ranking
from tuner.search.posterior import Prediction, SpaceModel, predict
from tuner.search.problem import Floats, Problem, TrialObservation
from tuner.search.regret import outlook
from tuner.specs import prices

LEAST_SPECS = 3
"""Least number of specs that ran, for a model of the space."""
MOST_MOMENTS = 8
"""Most moments at which the regret is computed: each needs its own model, half a second of a core."""
LARGEST_SPACE = 20_000
"""Most specs of a space for which the regret is computed: a larger one would take minutes."""


@dataclass(frozen=True)
class SearchData:
    """The experiment's observations, as the search had them, without those of earlier experiments."""

    problem: Problem
    observations: tuple[TrialObservation, ...]
    numbers: tuple[int, ...]
    """Number of each observation's trial."""

    @cached_property
    def prediction(self) -> Prediction:
        """The model's prediction for every spec."""
        return predict(self.problem, self.observations)

    @property
    def is_enough(self) -> bool:
        """Whether the observations are enough for a model of the space."""
        return len({each.index for each in self.observations if each.boots}) >= LEAST_SPECS


def search_data(evidence: Evidence) -> SearchData:
    """Return the experiment's observations, and its space with the costs by the first trial with a price."""
    observed = [(row.observation, row.spec.number) for row in evidence.rows if row.observation is not None]
    problem = problem_of(evidence.spec, evidence.space, _costs(evidence))
    return SearchData(
        problem, tuple(observation for observation, _ in observed), tuple(number for _, number in observed)
    )


def _costs(evidence: Evidence) -> Floats:
    """Return the hourly cost of each spec; zeros if no trial has a price, or a cost cannot be computed."""
    for row in evidence.rows:
        if row.index is not None and row.spec.cost_per_hour > 0:
            try:
                return prices.costs_from_trial(
                    evidence.spec, evidence.space, row.index, row.spec.cost_per_hour
                )
            except errors.Permanent:
                break  # a spec's share of a GPU does not exist: the costs are unknown
    return np.zeros(evidence.space.size)


def has_narrow_margin(data: SearchData, chosen: Choice) -> bool:
    """Return whether, by the search's rule, another measurement of the chosen spec may break a constraint.

    Unlike the search, this does not use earlier experiments.
    """
    if not data.problem.log_bounds or not any(each.index == chosen.spec for each in data.observations):
        return False
    ranked = ranking.ranked(data.observations, data.prediction, quantile=ranking.SAFETY_QUANTILE)
    return any(candidate.index == chosen.spec and not candidate.is_safe for candidate in ranked)


def steps(evidence: Evidence, regrets: Mapping[int, float]) -> list[Step]:
    """Return a step for each ended trial, by number.

    Only complete trials that may meet the constraints can be the best.

    Args:
        evidence: the trials.
        regrets: expected regret by the number of the last trial known at that moment.
    """
    history: list[Step] = []
    best: float | None = None
    for row in evidence.rows:
        if not row.status.reason:
            continue
        if row.is_complete and row.objective is not None and row.meets != "No":
            value = row.objective.value
            if best is None or evidence.score(value) > evidence.score(best):
                best = value
        number = row.spec.number
        history.append(Step(trial=number, best=best, expected_regret=regrets.get(number)))
    return history


def expected_regrets(data: SearchData) -> dict[int, float]:
    """Return the expected regret after some trials, by the trial's number; empty without enough data."""
    if not data.is_enough:
        return {}
    by_count = regrets(data.problem, data.observations)
    return {data.numbers[count - 1]: regret for count, regret in by_count.items()}


def regrets(problem: Problem, observations: Sequence[TrialObservation]) -> dict[int, float]:
    """Return the expected regret, a share of the optimum from 0 to 1, by the count of observations so far.

    It is computed at MOST_MOMENTS or fewer evenly spaced counts, the last one included, and only once a
    feasible spec is known.
    """
    if problem.size > LARGEST_SPACE:
        return {}
    counts = np.unique(np.linspace(1, len(observations), MOST_MOMENTS).round().astype(int))
    by_count = {int(count): _regret(problem, observations[:count]) for count in counts if count > 0}
    return {count: regret for count, regret in by_count.items() if regret is not None}


def _regret(problem: Problem, observations: Sequence[TrialObservation]) -> float | None:
    """Return the expected regret after these observations; None if no spec is feasible."""
    if not any(each.boots for each in observations):
        return None
    model = SpaceModel(problem, observations)
    ranked = ranking.ranked(observations, model.prediction, quantile=ranking.SAFETY_QUANTILE)
    best = ranking.best(ranked)
    if best is None:
        return None
    excluded = pruning.out_of_memory(problem, observations)
    excluded[[each.index for each in observations]] = True
    unmeasured = np.flatnonzero(~excluded).astype(np.int64)
    # The same draws at every moment, so that only observations move the line.
    return outlook(model, unmeasured, best.index, np.random.default_rng(0)).regret
