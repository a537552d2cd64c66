"""Transfer from earlier experiments of similar services, and the trust in them after each trial.

For each earlier experiment, a Gaussian process over its trials predicts this space's specs. The weighted
average of these predictions is the prior mean of the search's own Gaussian process; their spread is how far
this service may differ. An experiment loses weight as its ranking of the trials so far misleads (Feurer,
Letham and Bakshy, Scalable Meta-Learning for Bayesian Optimization, 2018). All experiments are dropped once
the average ranks no better than chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from tuner.search.posterior import SpaceModel, TransferPrior
from tuner.search.problem import Earlier, Floats, Integers, Problem, TrialObservation

LONE_SPREAD = 0.3
"""Spread, in log objective, where only one other service is known: about a third, as between the services of
the public tables (`benchmarks/search_quality.py`)."""
LEAST_SPREAD = 0.05
"""Least spread, in log objective: trials of one spec differ by as much, so closer agreement is chance."""
LEAST_TRIALS = 6
"""With fewer specs that ran, an earlier experiment is not used."""
_DOUBT_FROM = 5
"""Trials from which the ranking by earlier experiments is compared with that of the trials: with fewer,
rankings agree by chance."""
_DOUBT_BELOW = 0.3
"""Earlier experiments lose weight if Kendall's tau between the ranking by them and that of the trials is
below this; at a tau of 0 they have none."""
_LEAST_PROBABILITY = 1e-6
"""Lower bound of a probability, so that its logarithm is finite."""


@dataclass(frozen=True)
class EarlierModel:
    """The prediction of one earlier experiment for each of the n specs."""

    name: str
    objective: Floats
    """(n,): log objective, minus its mean over the specs."""
    log_values: Mapping[int, Floats]
    """(n,): log of each constrained value that the earlier experiment has too, by the index of the constraint
    in this problem."""
    boots: Floats
    """(n,): whether a replica of the spec starts, from -1 (never) to 1 (always)."""


def earlier_models(problem: Problem, earlier: Sequence[Earlier]) -> tuple[EarlierModel, ...]:
    """Return the predictions for this problem's specs; experiments with too few trials have none."""
    return tuple(
        _earlier_model(problem, experiment)
        for experiment in earlier
        if len({seen.index for seen in experiment.observations if seen.boots}) >= LEAST_TRIALS
    )


def _earlier_model(problem: Problem, earlier: Earlier) -> EarlierModel:
    """Return the prediction of an earlier experiment's Gaussian process for this problem's specs.

    The process is over a joint problem: the earlier experiment's specs, then this problem's.
    """
    theirs = earlier.problem
    if np.ptp(theirs.log_cost) == 0:
        # Without prices all costs are equal: with other costs, this problem's specs would seem unlike theirs.
        # If this problem is priced, its expected objective includes its costs, and is left out with them.
        is_priced = np.ptp(problem.log_cost) > 0
        same_cost = np.full(problem.size, theirs.log_cost[0])
        problem = replace(problem, log_cost=same_cost, expected=None if is_priced else problem.expected)
    # Of their specs only the measured ones, as a space may have a hundred thousand.
    rows, row_of_trial = np.unique([seen.index for seen in earlier.observations], return_inverse=True)
    # Of each of their constraints, its index in this problem; they have no others here.
    constraints = range(theirs.constraints) if earlier.constraints is None else earlier.constraints
    joint = Problem(
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
            None if problem.expected_margins is None else problem.expected_margins[:, list(constraints)],
        ),
    )
    observations = [
        replace(seen, index=int(row)) for seen, row in zip(earlier.observations, row_of_trial, strict=True)
    ]
    prediction = SpaceModel(joint, observations).prediction
    ours = slice(len(rows), None)
    objective = prediction.objective.mean[ours]
    return EarlierModel(
        name=earlier.name,
        objective=objective - objective.mean(),
        log_values={
            k: margin.mean[ours] + log_bound
            for k, margin, log_bound in zip(constraints, prediction.margins, theirs.log_bounds, strict=True)
        },
        boots=2 * prediction.p_boots[ours] - 1,
    )


def _stacked(theirs: Floats | None, rows: Integers, ours: Floats | None) -> Floats | None:
    """Return the expectations for their specs followed by those for ours; None unless both are known."""
    return None if theirs is None or ours is None else np.concatenate([theirs[rows], ours])


def weigh(
    problem: Problem,
    models: Sequence[EarlierModel],
    observations: Sequence[TrialObservation],
) -> TransferPrior | None:
    """Return the weighted prior of the models; None without models, or if they are not trusted.

    Args:
        problem: the search's problem.
        models: of the earlier experiments.
        observations: the trials of this search so far.
    """
    if not models:
        return None
    measured = [seen for seen in observations if seen.boots and seen.log_objective is not None]
    rows = np.array([seen.index for seen in measured], dtype=np.int64)
    values = np.array([seen.log_objective for seen in measured], dtype=np.float64)
    shares = _shares(models, rows, values)
    average: Floats = np.sum([w * model.objective for w, model in zip(shares, models, strict=True)], axis=0)
    trust = 1.0
    if len(measured) >= _DOUBT_FROM:
        trust = float(np.clip(_agreement(average[rows], values) / _DOUBT_BELOW, 0.0, 1.0))
    if trust <= 0:
        return None
    return _prior(problem, models, trust * shares, shares)


def _shares(models: Sequence[EarlierModel], rows: np.ndarray, values: Floats) -> Floats:
    """Return each model's share, which sum to 1, by the agreement of its ranking with the measured one.

    Args:
        models: of the earlier experiments.
        rows: (t,) index of the spec of each trial.
        values: (t,) measured log objective of each trial.
    """
    if len(rows) < _DOUBT_FROM:
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
        weights: the weight of each model's objective; their sum is the trust in all models, 1 at most.
        shares: the weight of each model's `log_values` and `boots`; their sum is 1.
    """
    objectives = np.array([model.objective for model in models])
    margins, spreads = [], []
    for k, log_bound in enumerate(problem.log_bounds):
        predicted = np.array([model.log_values[k] for model in models if k in model.log_values])
        share = np.array([w for model, w in zip(models, shares, strict=True) if k in model.log_values])
        # Without any prediction the prior is 0, as in a search without earlier experiments.
        known = share.sum() > 0
        margins.append(share @ predicted / share.sum() - log_bound if known else np.zeros(problem.size))
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
    """Return the typical distance of services from their average, by their (models, n) predictions."""
    if len(predicted) < 2:
        return LONE_SPREAD
    return max(float(predicted.std(axis=0, ddof=1).mean()), LEAST_SPREAD)


def learn(
    problem: Problem,
    earlier: Sequence[Earlier],
    observations: Sequence[TrialObservation],
) -> TransferPrior | None:
    """Return the prior from earlier experiments; None without an experiment, or if none is trusted.

    `earlier_models` and `weigh` in one call.
    """
    return weigh(problem, earlier_models(problem, earlier), observations)


def log_merits(prior: TransferPrior) -> Floats:
    """Return the expected log objective of each spec plus the log probability that it is feasible."""
    return prior.objective + log_feasibility(prior, (prior.boots + 1) / 2)


def log_feasibility(prior: TransferPrior, p_boots: Floats) -> Floats:
    """Return the log probability that each spec boots, by `p_boots`, and meets its constraints."""
    total: Floats = np.log(np.maximum(p_boots, _LEAST_PROBABILITY))
    for margin in prior.margins:
        total = total + np.log(np.maximum(ndtr(-margin / prior.margin_scale), _LEAST_PROBABILITY))
    return total
