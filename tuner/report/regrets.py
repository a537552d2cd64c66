"""What was to be missed after each trial, as the model that the trials of this experiment give would have said it."""

from collections.abc import Sequence

import numpy as np

from tuner.search import choice, pruning
from tuner.search.posterior import SpaceModel
from tuner.search.problem import Observation, Problem
from tuner.search.regret import outlook
from tuner.settings import SearchSettings

LOOKS = 8
"""Moments at which it is computed at most: each takes a model of its own, and half a second of a core."""
LARGEST = 20_000
"""Specs of a space beyond which it is not computed: the report would take minutes."""


def regrets(
    problem: Problem, observations: Sequence[Observation], settings: SearchSettings
) -> dict[int, float]:
    """Return, after the first k observations, the share of the optimum that the best so far is expected to fall short of.

    Nothing is said where nothing feasible is known yet. Where there are more than LOOKS observations, it is computed after evenly
    chosen ones, the last among them.
    """
    if problem.size > LARGEST:
        return {}
    moments = np.unique(np.linspace(1, len(observations), LOOKS).round().astype(int))
    found = {int(k): _regret(problem, observations[:k], settings) for k in moments if k > 0}
    return {k: regret for k, regret in found.items() if regret is not None}


def _regret(problem: Problem, seen: Sequence[Observation], settings: SearchSettings) -> float | None:
    if not any(one.boots for one in seen):
        return None
    belief = SpaceModel(problem, seen)
    ranked = choice.ranked(seen, belief.prediction, quantile=settings.safety_quantile)
    best = choice.best(ranked)
    if best is None:
        return None
    shut = pruning.out_of_memory(problem, seen)
    shut[[one.index for one in seen]] = True
    open_ = np.flatnonzero(~shut).astype(np.int64)
    # The same draws at every moment, so that the line moves by what was learned and not by chance.
    return outlook(belief, open_, best.index, np.random.default_rng(0)).regret
