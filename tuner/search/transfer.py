"""Transfer from earlier experiments of similar services, and the trust in them after each trial.

Each earlier experiment is a Gaussian process over its own trials that predicts this space's specs. The
weighted average of these predictions is the prior mean of the search's own process; their spread is how far
this service may differ. An experiment loses weight as its ranking of the trials so far misleads (Feurer,
Letham and Bakshy, Scalable Meta-Learning for Bayesian Optimization, 2018). All of them are dropped once the
average ranks no better than chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from tuner.search.posterior import SpaceModel, TransferPrior
from tuner.search.problem import Earlier, Floats, Integers, Observation, Problem
from tuner.settings import SearchSettings

LONE_SPREAD = 0.3
"""Distance of a service from the only other known one, in log objective: a third, as in the public tables."""
LEAST_SPREAD = 0.05
"""Least spread: closer agreement than a measurement repeats is chance."""
LEAST_TRIALS = 6
"""With fewer specs that ran, an earlier experiment is not used."""


@dataclass(frozen=True)
class EarlierModel:
    """The prediction of one earlier experiment for each of the n specs."""

    name: str
    objective: Floats
    """Log objective, centred."""
    margins: Mapping[int, Floats]
    """Log of the constrained value, not divided by a bound, for each shared constraint of this problem."""
    boots: Floats
    """Whether a replica of the spec starts: from -1 (never) to 1 (always)."""


def earlier_models(problem: Problem, earlier: Sequence[Earlier]) -> tuple[EarlierModel, ...]:
    """Return the predictions for this problem's specs; experiments with too few trials have none."""
    return tuple(
        _earlier_model(problem, experiment)
        for experiment in earlier
        if len({seen.index for seen in experiment.observations if seen.boots}) >= LEAST_TRIALS
    )


def _earlier_model(problem: Problem, earlier: Earlier) -> EarlierModel:
    """Return the prediction of an earlier experiment's process for this problem's specs."""
    theirs = earlier.problem
    if np.ptp(theirs.log_cost) == 0:  # without prices, the cost must not separate its specs from ours
        priced = np.ptp(problem.log_cost) > 0
        alike = np.full(problem.size, theirs.log_cost[0])
        problem = replace(problem, log_cost=alike, expected=None if priced else problem.expected)
    # Only the measured specs: a space may have a hundred thousand.
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
    prediction = SpaceModel(both, moved).prediction
    here = slice(len(rows), None)
    objective = prediction.objective.mean[here]
    return EarlierModel(
        name=earlier.name,
        objective=objective - objective.mean(),
        margins={
            k: margin.mean[here] + bound
            for k, margin, bound in zip(ours, prediction.margins, theirs.log_bounds, strict=True)
        },
        boots=2 * prediction.p_boots[here] - 1,
    )


def _stacked(theirs: Floats | None, rows: Integers, ours: Floats | None) -> Floats | None:
    """Return the expectations for their specs followed by those for ours; None unless both are known."""
    return None if theirs is None or ours is None else np.concatenate([theirs[rows], ours])


def weigh(
    problem: Problem,
    models: Sequence[EarlierModel],
    observations: Sequence[Observation],
    settings: SearchSettings,
) -> TransferPrior | None:
    """Return the weighted prior of the models; None without models, or if they are not trusted."""
    if not models:
        return None
    running = [seen for seen in observations if seen.boots and seen.log_objective is not None]
    rows = np.array([seen.index for seen in running], dtype=np.int64)
    values = np.array([seen.log_objective for seen in running], dtype=np.float64)
    shares = _shares(models, rows, values, settings)
    average: Floats = np.sum([w * model.objective for w, model in zip(shares, models, strict=True)], axis=0)
    trust = 1.0
    if len(running) >= settings.doubt_from:
        trust = float(np.clip(_agreement(average[rows], values) / settings.doubt_below, 0.0, 1.0))
    if trust <= 0:
        return None
    return _prior(problem, models, trust * shares, shares)


def _shares(
    models: Sequence[EarlierModel], rows: np.ndarray, values: Floats, settings: SearchSettings
) -> Floats:
    if len(rows) < settings.doubt_from:
        return np.full(len(models), 1 / len(models))
    agreements = np.array([_agreement(model.objective[rows], values) for model in models])
    # The evidence for a ranking grows with the trials that it ranks.
    shares = np.exp(len(rows) * (agreements - agreements.max()) / 2)
    return np.asarray(shares / shares.sum())


def _agreement(predicted: Floats, measured: Floats) -> float:
    """Return Kendall's tau: 1 for the same ranking, 0 for an unrelated one or ties."""
    tau = float(kendalltau(predicted, measured).statistic)
    return 0.0 if np.isnan(tau) else tau


def _prior(
    problem: Problem, models: Sequence[EarlierModel], weights: Floats, shares: Floats
) -> TransferPrior:
    """Return the average of the models' predictions as a prior.

    Args:
        problem: of the search.
        models: of the earlier experiments.
        weights: of the models' objectives; their sum is the trust in them all, 1 at most.
        shares: of the models' margins and starts; their sum is 1.
    """
    objectives = np.array([model.objective for model in models])
    margins, spreads = [], []
    for k, bound in enumerate(problem.log_bounds):
        predicted = np.array([model.margins[k] for model in models if k in model.margins])
        share = np.array([w for model, w in zip(models, shares, strict=True) if k in model.margins])
        # Without any prediction the prior is 0, as in a search without earlier experiments.
        known = share.sum() > 0
        margins.append(share @ predicted / share.sum() - bound if known else np.zeros(problem.size))
        spreads.append(_spread(predicted))
    return TransferPrior(
        objective=weights @ objectives,
        margins=tuple(margins),
        boots=np.average([model.boots for model in models], axis=0, weights=shares),
        scale=_spread(objectives),
        margin_scale=float(np.mean(spreads)) if spreads else LONE_SPREAD,
        weights=tuple((model.name, float(w)) for model, w in zip(models, weights, strict=True)),
    )


def _spread(predicted: Floats) -> float:
    """Return the typical distance of services from their average."""
    if len(predicted) < 2:
        return LONE_SPREAD
    return max(float(predicted.std(axis=0, ddof=1).mean()), LEAST_SPREAD)


def learn(
    problem: Problem,
    earlier: Sequence[Earlier],
    observations: Sequence[Observation],
    settings: SearchSettings,
) -> TransferPrior | None:
    """Return the prior from earlier experiments; None without any, or if they are not trusted."""
    return weigh(problem, earlier_models(problem, earlier), observations, settings)


def log_merits(prior: TransferPrior) -> Floats:
    """Return the expected log objective of each spec plus the log probability that it is feasible."""
    return prior.objective + log_feasibility(prior, (prior.boots + 1) / 2)


def log_feasibility(prior: TransferPrior, p_boots: Floats) -> Floats:
    """Return the log probability that each spec boots, by `p_boots`, and meets its constraints."""
    total: Floats = np.log(np.maximum(p_boots, 1e-6))
    for margin in prior.margins:
        total = total + np.log(np.maximum(ndtr(-margin / prior.margin_scale), 1e-6))
    return total
