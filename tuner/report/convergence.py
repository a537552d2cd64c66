"""How the search converged: the best spec and the expected regret after each trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.observation import problem_of
from tuner.report.evidence import Evidence
from tuner.report.schema import Choice, Step
from tuner.search import choice, pruning
from tuner.search.posterior import Prediction, SpaceModel, predict
from tuner.search.problem import Observation, Problem
from tuner.search.regret import outlook
from tuner.settings import SearchSettings

LEAST_SPECS = 3
"""Running specs below which a model of the space says nothing."""
MOST_MOMENTS = 8
"""Moments at which the regret is computed at most: each takes a model of its own, half a second of a core."""
LARGEST_SPACE = 20_000
"""Specs of a space above which no regret is computed: the report would take minutes."""


@dataclass(frozen=True)
class SearchData:
    """The experiment's observations as the search had them, without earlier experiments."""

    problem: Problem
    observations: tuple[Observation, ...]
    numbers: tuple[int, ...]
    """Of the trials that made them."""

    @cached_property
    def prediction(self) -> Prediction:
        """The model's prediction for every spec."""
        return predict(self.problem, self.observations)

    @property
    def is_enough(self) -> bool:
        """Whether a model of the space says anything."""
        return len({seen.index for seen in self.observations if seen.boots}) >= LEAST_SPECS


def search_data(evidence: Evidence) -> SearchData:
    """Return the experiment's observations; the costs of unmeasured specs do not matter here."""
    observed = [(row.observation, row.spec.number) for row in evidence.rows if row.observation is not None]
    problem = problem_of(evidence.spec, evidence.space, np.zeros(evidence.space.size))
    return SearchData(
        problem, tuple(observation for observation, _ in observed), tuple(number for _, number in observed)
    )


def has_narrow_margin(data: SearchData, chosen: Choice, settings: SearchSettings) -> bool:
    """Return whether another measurement of this spec may break a constraint, as the search judges it.

    Earlier experiments, which the search may have had as well, are left out.
    """
    if not data.problem.log_bounds or not any(seen.index == chosen.spec for seen in data.observations):
        return False
    ranked = choice.ranked(data.observations, data.prediction, quantile=settings.safety_quantile)
    return any(candidate.index == chosen.spec and candidate.safety < 0 for candidate in ranked)


def steps(evidence: Evidence, regrets: Mapping[int, float]) -> list[Step]:
    """Return a step for each ended trial, by number.

    Only complete trials that met the constraints can be the best.

    Args:
        evidence: the trials.
        regrets: expected regret by the number of the last trial known at that moment.
    """
    found: list[Step] = []
    best: float | None = None
    for row in evidence.rows:
        if not row.status.reason:
            continue
        if row.complete and row.objective is not None and row.meets != "No":
            value = row.objective.value
            if best is None or evidence.score(value) > evidence.score(best):
                best = value
        number = row.spec.number
        found.append(Step(trial=number, best=best, expected_regret=regrets.get(number)))
    return found


def expected_regrets(data: SearchData, settings: SearchSettings) -> dict[int, float]:
    """Return the expected regret by the number of the last trial known then; empty without enough data."""
    if not data.is_enough:
        return {}
    found = regrets(data.problem, data.observations, settings)
    return {data.numbers[count - 1]: regret for count, regret in found.items()}


def regrets(
    problem: Problem, observations: Sequence[Observation], settings: SearchSettings
) -> dict[int, float]:
    """Return the expected regret, a share of the optimum, after the first k observations.

    There is none while no feasible spec is known. It is computed after at most MOST_MOMENTS evenly spaced
    observations, the last one included.
    """
    if problem.size > LARGEST_SPACE:
        return {}
    moments = np.unique(np.linspace(1, len(observations), MOST_MOMENTS).round().astype(int))
    found = {int(k): _regret(problem, observations[:k], settings) for k in moments if k > 0}
    return {k: regret for k, regret in found.items() if regret is not None}


def _regret(problem: Problem, observations: Sequence[Observation], settings: SearchSettings) -> float | None:
    if not any(seen.boots for seen in observations):
        return None
    model = SpaceModel(problem, observations)
    ranked = choice.ranked(observations, model.prediction, quantile=settings.safety_quantile)
    best = choice.best(ranked)
    if best is None:
        return None
    closed = pruning.out_of_memory(problem, observations)
    closed[[seen.index for seen in observations]] = True
    open_ = np.flatnonzero(~closed).astype(np.int64)
    # The same draws at every moment: the line moves by what was learned and not by chance.
    return outlook(model, open_, best.index, np.random.default_rng(0)).regret
