"""What the trials let expect of every spec of the space, as surfaces, curves and shares of the axes; and what was to be missed when."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.observation import observation_of, problem_of
from tuner.report import importance, regrets, surfaces
from tuner.report.evidence import Evidence
from tuner.report.schema import Choice, Model, Share
from tuner.search import choice
from tuner.search.posterior import Prediction, predict
from tuner.search.problem import Floats, Observation, Problem
from tuner.settings import SearchSettings

LEAST = 3
"""Running specs without which a model says nothing."""


@dataclass(frozen=True)
class SearchData:
    """What the search was told, and by which trial."""

    problem: Problem
    observations: tuple[Observation, ...]
    numbers: tuple[int, ...]

    @cached_property
    def prediction(self) -> Prediction:
        """What they let expect of every spec."""
        return predict(self.problem, self.observations)

    @property
    def enough(self) -> bool:
        """Whether a model of it says anything."""
        return len({one.index for one in self.observations if one.boots}) >= LEAST


def seen(evidence: Evidence) -> SearchData:
    """Return an experiment as the search sees it; what unmeasured specs cost does not matter here."""
    spec = evidence.spec
    found = [
        (one, row.spec.number)
        for row, trial in zip(evidence.rows, evidence.objects, strict=True)
        if row.index is not None
        and (one := observation_of(dict(trial), evidence.space, spec.objective, spec.constraints)) is not None
    ]
    problem = problem_of(spec, evidence.space, np.zeros(evidence.space.size))
    return SearchData(problem, tuple(one for one, _ in found), tuple(number for _, number in found))


def model(evidence: Evidence, known: SearchData, chosen: Choice | None) -> Model | None:
    """Return the model around the recommended spec, else around the best that is expected; None with too little to go by."""
    if not known.enough:
        return None
    found = known.prediction
    meets: Floats = found.p_meets * found.p_boots
    around = (
        chosen.spec
        if chosen is not None and chosen.spec is not None
        else _likeliest(found.objective.mean, meets)
    )
    mean = found.objective.mean if evidence.maximized else -found.objective.mean
    ranks = evidence.space.ranks()
    parts = importance.shares(mean, ranks)
    grid = surfaces.Grid.of(ranks, mean, found.objective.deviation, meets, around)
    weight = {axes[0]: share for axes, share in parts.items() if len(axes) == 1}
    return Model(
        observations=len(known.observations),
        around=around,
        surfaces=surfaces.surfaces(grid, weight),
        curves=surfaces.curves(grid),
        shares=[Share(axes=list(axes), share=share) for axes, share in parts.items()],
    )


def _likeliest(mean: Floats, meets: Floats) -> int:
    return int(np.argmax(np.where(meets >= meets.max() / 2, mean, -np.inf)))


def narrow(known: SearchData, chosen: Choice, settings: SearchSettings) -> bool:
    """Return whether a further measurement of this spec may break a constraint, by the noise that was seen: as the search judges it.

    It then was the best that there was; earlier experiments, which the search may have had too, are not looked at.
    """
    if not known.problem.log_bounds or not any(one.index == chosen.spec for one in known.observations):
        return False
    ranked = choice.ranked(known.observations, known.prediction, quantile=settings.safety_quantile)
    return any(one.index == chosen.spec and one.safety < 0 for one in ranked)


def missed(known: SearchData, settings: SearchSettings) -> dict[int, float]:
    """Return what was to be missed, by the number of the last trial that was known then; empty with too little to go by."""
    if not known.enough:
        return {}
    found = regrets.regrets(known.problem, known.observations, settings)
    return {known.numbers[k - 1]: regret for k, regret in found.items()}
