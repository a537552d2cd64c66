"""What earlier experiments of similar services say of this one, and how much they are believed once it says otherwise.

Each earlier experiment is a process over its own trials, asked for this space's specs. Their average is what is expected here before anything
is measured, and what the search's own process is added to; how far they differ from each other is how far this service may differ from them.
Each one's share in the average falls as its ranking of the trials so far misleads (Feurer, Letham and Bakshy, Scalable Meta-Learning for Bayesian
Optimization, 2018), and all of it is dropped when the average ranks them no better than chance would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from tuner.search.lessons import TransferPrior
from tuner.search.posterior import SpaceModel
from tuner.search.problem import Earlier, Floats, Integers, Observation, Problem
from tuner.settings import SearchSettings

LONE_SPREAD = 0.3
"""How far a service is from the only other one that is known, in log objective: a third, as in the public tables."""
LEAST_SPREAD = 0.05
"""Services that agree more closely than a measurement repeats are not to be believed to."""
LEAST_TRIALS = 6
"""An earlier experiment with fewer that ran says too little of its space."""


@dataclass(frozen=True)
class EarlierModel:
    """What one earlier experiment says of each of the n specs."""

    name: str
    objective: Floats
    """Log objective, centred."""
    margins: Mapping[int, Floats]
    """Log of the constrained value, without its bound, by which of this problem's constraints it is; those that it had too."""
    boots: Floats
    """From -1, never, to 1, always."""


def lessons(problem: Problem, earlier: Sequence[Earlier]) -> tuple[EarlierModel, ...]:
    """Return what each of them says of this problem's specs; those with too few trials say nothing."""
    return tuple(
        _lesson(problem, one)
        for one in earlier
        if len({seen.index for seen in one.observations if seen.boots}) >= LEAST_TRIALS
    )


def _lesson(problem: Problem, earlier: Earlier) -> EarlierModel:
    """Return the belief of an earlier experiment, at this problem's specs."""
    theirs = earlier.problem
    if np.ptp(theirs.log_cost) == 0:  # told without prices: then they must not tell its specs from ours
        priced = np.ptp(problem.log_cost) > 0
        alike = np.full(problem.size, theirs.log_cost[0])
        problem = replace(problem, log_cost=alike, expected=None if priced else problem.expected)
    # Of its specs those that it measured are enough: a space may have a hundred thousand.
    rows, at = np.unique([seen.index for seen in earlier.observations], return_inverse=True)
    ours = range(theirs.constraints) if earlier.constraints is None else earlier.constraints
    both = Problem(
        coordinates=np.vstack([theirs.coordinates[rows], problem.coordinates]),
        ranks=np.vstack([theirs.ranks[rows], problem.ranks]),
        ordered=problem.ordered,
        resource=problem.resource,
        log_cost=np.concatenate([theirs.log_cost[rows], problem.log_cost]),
        log_bounds=theirs.log_bounds,
        expected=_stacked(theirs.expected, rows, problem.expected),
        expected_margins=_stacked(
            theirs.expected_margins,
            rows,
            None if problem.expected_margins is None else problem.expected_margins[:, list(ours)],
        ),
    )
    moved = [replace(seen, index=int(row)) for seen, row in zip(earlier.observations, at, strict=True)]
    found = SpaceModel(both, moved).prediction
    here = slice(len(rows), None)
    objective = found.objective.mean[here]
    return EarlierModel(
        name=earlier.name,
        objective=objective - objective.mean(),
        margins={
            k: margin.mean[here] + bound
            for k, margin, bound in zip(ours, found.margins, theirs.log_bounds, strict=True)
        },
        boots=2 * found.p_boots[here] - 1,
    )


def _stacked(theirs: Floats | None, rows: Integers, ours: Floats | None) -> Floats | None:
    """Return what was expected of their specs, and of ours after these; None unless both are known."""
    return None if theirs is None or ours is None else np.concatenate([theirs[rows], ours])


def weigh(
    problem: Problem,
    found: Sequence[EarlierModel],
    observations: Sequence[Observation],
    settings: SearchSettings,
) -> TransferPrior | None:
    """Return what they say together; None where they are not believed, or there are none."""
    if not found:
        return None
    running = [seen for seen in observations if seen.boots and seen.log_objective is not None]
    rows = np.array([seen.index for seen in running], dtype=np.int64)
    values = np.array([seen.log_objective for seen in running], dtype=np.float64)
    shares = _shares(found, rows, values, settings)
    together: Floats = np.sum([w * one.objective for w, one in zip(shares, found, strict=True)], axis=0)
    trust = 1.0
    if len(running) >= settings.doubt_from:
        trust = float(np.clip(_agreement(together[rows], values) / settings.doubt_below, 0.0, 1.0))
    if trust <= 0:
        return None
    return _together(problem, found, trust * shares, shares)


def _shares(
    found: Sequence[EarlierModel], rows: np.ndarray, values: Floats, settings: SearchSettings
) -> Floats:
    if len(rows) < settings.doubt_from:
        return np.full(len(found), 1 / len(found))
    agreements = np.array([_agreement(one.objective[rows], values) for one in found])
    # The evidence for a ranking grows with the pairs that it ranks; twice as many trials tell lessons apart twice as sharply.
    shares = np.exp(len(rows) * (agreements - agreements.max()) / 2)
    return np.asarray(shares / shares.sum())


def _agreement(said: Floats, seen: Floats) -> float:
    """Return Kendall's tau: 1 for the same ranking, 0 for none; 0 where everything ties."""
    tau = float(kendalltau(said, seen).statistic)
    return 0.0 if np.isnan(tau) else tau


def _together(
    problem: Problem, found: Sequence[EarlierModel], weights: Floats, shares: Floats
) -> TransferPrior:
    objectives = np.array([one.objective for one in found])
    margins, spreads = [], []
    for k, bound in enumerate(problem.log_bounds):
        said = np.array([one.margins[k] for one in found if k in one.margins])
        share = np.array([w for one, w in zip(found, shares, strict=True) if k in one.margins])
        # Where nobody says anything, nothing is expected: as in a search from nothing.
        told = share.sum() > 0
        margins.append(share @ said / share.sum() - bound if told else np.zeros(problem.size))
        spreads.append(_spread(said))
    return TransferPrior(
        objective=weights @ objectives,
        margins=tuple(margins),
        boots=np.average([one.boots for one in found], axis=0, weights=shares),
        scale=_spread(objectives),
        margin_scale=float(np.mean(spreads)) if spreads else LONE_SPREAD,
        weights=tuple((one.name, float(w)) for one, w in zip(found, weights, strict=True)),
    )


def _spread(said: Floats) -> float:
    """Return how far services typically are from their average."""
    if len(said) < 2:
        return LONE_SPREAD
    return max(float(said.std(axis=0, ddof=1).mean()), LEAST_SPREAD)


def learn(
    problem: Problem,
    earlier: Sequence[Earlier],
    observations: Sequence[Observation],
    settings: SearchSettings,
) -> TransferPrior | None:
    """Return what earlier experiments say; None where there are none, or they are not believed any more."""
    return weigh(problem, lessons(problem, earlier), observations, settings)


def hopes(found: TransferPrior) -> Floats:
    """Return what each spec promises before anything was measured here: its log objective, if it boots and meets its constraints."""
    return found.objective + chances(found, (found.boots + 1) / 2)


def chances(found: TransferPrior, p_boots: Floats) -> Floats:
    """Return the logarithm of the probability that each spec boots, which is given, and meets its constraints as others did."""
    total: Floats = np.log(np.maximum(p_boots, 1e-6))
    for margin in found.margins:
        total = total + np.log(np.maximum(ndtr(-margin / found.margin_scale), 1e-6))
    return total
