"""The first trials, as many as run in parallel: the middle of the space, and others far from each other.

The middle is most informative about the rest, and boots more often than a corner. Without parallel trials
the middle is the whole design, and a model chooses the second spec: searches of the public tables then came
within 5 % of the best spec after 5 and 7 trials; with first trials spread over the space, one more than there
are axes, after 12 and 9 (benchmarks/results/search.md).
"""

import numpy as np

from tuner.search.problem import Floats, Problem, features

_TRIES = 200
"""Random subsets to compare; more are no better at these sizes."""
_MEAN_WEIGHT = 0.01
"""Weight of the mean squared distance to the nearest spec, beside the least one: of subsets with about the
same least distance, the one whose other specs are farther apart wins."""


def spread(problem: Problem, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return `count` different specs: the middle one, and the most distant others among random subsets.

    Johnson, Moore and Ylvisaker, Minimax and maximin distance designs, 1990. An exactly maximin design
    prefers corners, which seldom boot.
    """
    points = features(problem)  # (n, f)
    middle = _middle(points, rng)
    count = min(count, problem.size)
    if count == 1:
        return (middle,)
    best, chosen = -1.0, np.arange(count)
    others = np.setdiff1d(np.arange(problem.size), [middle])
    for _ in range(_TRIES):
        rows = np.array([middle, *rng.choice(others, count - 1, replace=False)])
        squared = ((points[rows, None] - points[None, rows]) ** 2).sum(axis=2)
        np.fill_diagonal(squared, np.inf)
        nearest = squared.min(axis=1)  # of each chosen spec to the other ones
        quality = float(nearest.min() + _MEAN_WEIGHT * nearest.mean())
        if quality > best:
            best, chosen = quality, rows
    return tuple(int(row) for row in chosen)


def _middle(points: Floats, rng: np.random.Generator) -> int:
    """Return the spec nearest to the middle of every axis; a random one of several."""
    squared = ((points - (points.max(axis=0) + points.min(axis=0)) / 2) ** 2).sum(axis=1)
    nearest = np.flatnonzero(squared <= squared.min() + 1e-9)
    return int(rng.choice(nearest))
