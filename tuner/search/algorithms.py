"""Other ways to choose the next spec, to compare with and for who asks for them: grid, random, and Optuna's TPE."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from serving import errors
from tuner.search.problem import Integers, Observation, Problem

Propose = Callable[[Problem, Sequence[Observation], Integers, int, int], tuple[int, ...]]
"""(problem, observations, open specs, how many, seed) → specs to measure next, all of them open."""

_ASKS = 30
"""Proposals of Optuna that may be specs which were measured before, until a random one is taken."""


def grid(
    problem: Problem, observations: Sequence[Observation], open_: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return the next specs in the order of the space, as Katib's and Morphling's grid search have it."""
    del problem, observations, seed
    return tuple(int(row) for row in open_[:count])


def random(
    problem: Problem, observations: Sequence[Observation], open_: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return the next specs of a random order of the space, so that none comes twice."""
    del observations
    order = np.random.default_rng(seed).permutation(problem.size)
    return tuple(int(row) for row in order[np.isin(order, open_)][:count])


def tpe(
    problem: Problem, observations: Sequence[Observation], open_: Integers, count: int, seed: int
) -> tuple[int, ...]:
    """Return specs of Optuna's multivariate TPE over the axes' ranks, told of constraints, and of what does not boot as breaking one.

    Watanabe, Tree-Structured Parzen Estimator, 2023.

    Raises:
        errors.Permanent: AlgorithmMissing, there is no package optuna.
    """
    try:
        import optuna  # noqa: PLC0415 an extra: who does not ask for it need not have it
    except ImportError as error:
        message = "spec.algorithm.algorithmName: tpe needs the package optuna: pip install 'slipway[tpe]'"
        raise errors.Permanent("AlgorithmMissing", message) from error

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        multivariate=True, seed=seed + len(observations), n_startup_trials=10
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = _distributions(problem, optuna)
    worst = min((seen.log_objective for seen in observations if seen.log_objective is not None), default=0.0)
    for seen in observations:
        study.add_trial(_told(problem, seen, distributions, worst, optuna))
    row_of = {tuple(rank): row for row, rank in enumerate(problem.ranks.tolist())}
    free = {int(row) for row in open_}
    found: list[int] = []
    for _ in range(_ASKS * count):
        if len(found) == min(count, len(open_)):
            break
        asked = study.ask(distributions)
        row = row_of.get(tuple(asked.params[name] for name in distributions))
        if row is not None and row in free:
            free.remove(row)
            found.append(row)
    rest = random(problem, observations, np.array(sorted(free), dtype=np.int64), count - len(found), seed)
    return (*found, *rest)


def _distributions(problem: Problem, optuna: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for axis, ordered in enumerate(problem.ordered):
        most = int(problem.ranks[:, axis].max())
        if ordered:
            found[str(axis)] = optuna.distributions.IntDistribution(0, most)
        else:
            found[str(axis)] = optuna.distributions.CategoricalDistribution(tuple(range(most + 1)))
    return found


def _told(
    problem: Problem, seen: Observation, distributions: Mapping[str, Any], worst: float, optuna: Any
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
