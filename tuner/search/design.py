"""The first trials: the middle of the space, and as many others as run in parallel, far from each other.

The middle is most informative about the rest, and boots more often than a corner. A model begins with the
second trial: spread specs in its place need twice as many trials until 5 % from the best
(benchmarks/results/search.md).
"""

import numpy as np

from tuner.search.problem import Floats, Problem, features

_TRIES = 200
"""Random subsets to compare; more are no better at these sizes."""


def spread(problem: Problem, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return `count` different specs: the middle one, and the most distant others among random subsets.

    Johnson, Moore and Ylvisaker, Minimax and maximin distance designs, 1990. An exactly maximin design
    prefers corners, which seldom boot.
    """
    points = features(problem)
    middle = _middle(points, rng)
    count = min(count, problem.size)
    if count == 1:
        return (middle,)
    best, chosen = -1.0, np.arange(count)
    others = np.setdiff1d(np.arange(problem.size), [middle])
    for _ in range(_TRIES):
        rows = np.array([middle, *rng.choice(others, count - 1, replace=False)])
        apart = ((points[rows, None] - points[None, rows]) ** 2).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        nearest = apart.min(axis=1)
        quality = float(nearest.min() + 0.01 * nearest.mean())
        if quality > best:
            best, chosen = quality, rows
    return tuple(int(row) for row in chosen)


def _middle(points: Floats, rng: np.random.Generator) -> int:
    """Return the spec nearest to the middle of every axis; a random one of several."""
    away = ((points - (points.max(axis=0) + points.min(axis=0)) / 2) ** 2).sum(axis=1)
    nearest = np.flatnonzero(away <= away.min() + 1e-9)
    return int(rng.choice(nearest))
