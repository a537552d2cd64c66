"""The search algorithms other than the default, `bayesian`: grid, random, and Optuna's TPE."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from serving import errors
from tuner.search.problem import Integers, Problem, TrialObservation

Propose = Callable[[Problem, Sequence[TrialObservation], Integers, int, int], tuple[int, ...]]
"""(problem, observations, unmeasured specs, count, seed) → specs to measure next."""

_ATTEMPTS = 30
"""Proposals to request from Optuna for each spec before a random one is taken: some are measured already."""


def grid(
    problem: Problem, observations: Sequence[TrialObservation], unmeasured: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return the next specs in the order of the space, as the grid search of Katib and Morphling does."""
    del problem, observations, seed
    return tuple(int(row) for row in unmeasured[:count])


def random(
    problem: Problem, observations: Sequence[TrialObservation], unmeasured: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return the next specs of one random order of the space, so that none comes twice."""
    del observations
    order = np.random.default_rng(seed).permutation(problem.size)
    return tuple(int(row) for row in order[np.isin(order, unmeasured)][:count])


def tpe(
    problem: Problem, observations: Sequence[TrialObservation], unmeasured: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return specs of Optuna's multivariate TPE over the axes' ranks.

    TPE ignores failed trials, so a spec that does not boot is a trial that breaks one more constraint.
    Watanabe, Tree-Structured Parzen Estimator, 2023.

    Raises:
        errors.Permanent: AlgorithmMissing, the package optuna is not installed.
    """
    try:
        import optuna  # noqa: PLC0415 the extra slipway[tpe]
    except ImportError as error:
        message = "spec.algorithm.algorithmName: tpe needs the package optuna: pip install 'slipway[tpe]'"
        raise errors.Permanent("AlgorithmMissing", message) from error

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Each call has a new sampler: with one seed for all calls it would draw the same random numbers again.
    # The first ten trials are random, which is Optuna's default.
    sampler = optuna.samplers.TPESampler(
        multivariate=True, seed=seed + len(observations), n_startup_trials=10
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = _distributions(problem, optuna)
    worst = min((seen.log_objective for seen in observations if seen.log_objective is not None), default=0.0)
    for seen in observations:
        study.add_trial(_past_trial(problem, seen, distributions, worst, optuna))
    row_of = {tuple(rank): row for row, rank in enumerate(problem.ranks.tolist())}
    remaining = {int(row) for row in unmeasured}
    rows: list[int] = []
    for _ in range(_ATTEMPTS * count):
        if len(rows) == min(count, len(unmeasured)):
            break
        proposal = study.ask(distributions)
        row = row_of.get(tuple(proposal.params[name] for name in distributions))
        if row is not None and row in remaining:
            remaining.remove(row)
            rows.append(row)
    others = np.array(sorted(remaining), dtype=np.int64)
    return (*rows, *random(problem, observations, others, count - len(rows), seed))


def _distributions(problem: Problem, optuna: Any) -> Mapping[str, Any]:
    distributions: dict[str, Any] = {}
    for axis, ordered in enumerate(problem.ordered):
        most = int(problem.ranks[:, axis].max())
        if ordered:
            distributions[str(axis)] = optuna.distributions.IntDistribution(0, most)
        else:
            distributions[str(axis)] = optuna.distributions.CategoricalDistribution(tuple(range(most + 1)))
    return distributions


def _past_trial(
    problem: Problem, seen: TrialObservation, distributions: Mapping[str, Any], worst: float, optuna: Any
) -> Any:
    ranks = problem.ranks[seen.index].tolist()
    constraints = {f"margin-{k}": margin for k, margin in enumerate(seen.margins)}
    return optuna.trial.create_trial(
        params={str(axis): rank for axis, rank in enumerate(ranks)},
        distributions=dict(distributions),
        value=seen.log_objective if seen.log_objective is not None else worst,
        constraints={**constraints, "boots": 0.0 if seen.boots else 1.0},
    )


ALGORITHMS: Mapping[str, Propose] = {"grid": grid, "random": random, "tpe": tpe}
"""By their names in `spec.algorithm.algorithmName`."""
