"""The first trials: few, and far from each other."""

import numpy as np

from tuner.search.problem import Problem, features

_TRIES = 200
"""Random subsets that are compared; more are no better at the sizes that are wanted."""


def spread(problem: Problem, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return `count` different specs, as far from each other as the best of some random subsets.

    Johnson, Moore and Ylvisaker, Minimax and maximin distance designs, 1990. Corners are not preferred, as a design that is exactly maximin
    does: they seldom boot.
    """
    points = features(problem)
    count = min(count, problem.size)
    best, found = -1.0, np.arange(count)
    for _ in range(_TRIES):
        rows = rng.choice(problem.size, count, replace=False)
        apart = ((points[rows, None] - points[None, rows]) ** 2).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        nearest = apart.min(axis=1) if count > 1 else np.zeros(1)
        quality = float(nearest.min() + 0.01 * nearest.mean())
        if quality > best:
            best, found = quality, rows
    return tuple(int(row) for row in found)
