"""What stopping now is expected to cost: how far the best unmeasured spec may be above the best measured one."""

from dataclasses import dataclass

import numpy as np

from tuner.search.acquisition import log_expected_improvement
from tuner.search.posterior import SpaceModel
from tuner.search.problem import Floats, Integers

DRAWS = 256
"""Functions drawn; the standard error of a regret of 1 % is then below 0.2 %."""
CANDIDATES = 100
"""Specs that are drawn jointly, those that are likeliest to be better: a draw of n takes n³."""


@dataclass(frozen=True)
class Outlook:
    """What is expected of the specs that were not measured."""

    regret: float
    """E[1 - exp(best - f*)], f* the highest feasible objective: a share of the optimum, 0 to 1."""
    p_any: float
    """Probability that one of them boots and meets every constraint."""


def outlook(belief: SpaceModel, open_: Integers, best: int | None, rng: np.random.Generator) -> Outlook:
    """Return what is expected.

    Args:
        belief: after everything that was observed.
        open_: the specs that may still be measured.
        best: the spec that would be recommended now; None where none is feasible.
        rng: of the draws.
    """
    if not len(open_):
        return Outlook(0.0, 0.0)
    candidates = _likeliest(belief, open_, best)
    rows = candidates if best is None else np.append(candidates, best)
    objective, good = belief.draw(rows, DRAWS, rng)
    others = np.where(good, objective, -np.inf)[:, : len(candidates)]
    p_any = float(good[:, : len(candidates)].any(axis=1).mean())
    if best is None:
        return Outlook(1.0, p_any)
    missed = 1 - np.exp(np.minimum(objective[:, -1] - others.max(axis=1), 0.0))
    return Outlook(float(missed.mean()), p_any)


def _likeliest(belief: SpaceModel, open_: Integers, best: int | None) -> Integers:
    if len(open_) <= CANDIDATES:
        return open_
    found = belief.prediction
    hopes: Floats = np.log(np.maximum(found.p_meets * found.p_boots, 1e-12))
    if best is not None:
        hopes = hopes + log_expected_improvement(
            found.objective.mean, found.objective.deviation, float(found.objective.mean[best])
        )
    order = np.argsort(-hopes[open_], kind="stable")
    return open_[order[:CANDIDATES]]
