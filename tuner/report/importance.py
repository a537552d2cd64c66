"""Which axes matter: functional ANOVA of the posterior mean over the whole finite space.

F. Hutter, H. Hoos, K. Leyton-Brown, "An efficient approach for assessing hyperparameter importance", ICML 2014; on a full grid the
decomposition (Hoeffding 1948, Sobol 1993) needs no sampling: a main effect is the variance of the means over all other axes, and what two
axes do together is the variance of their joint means that neither does alone. The shares of all subsets add up to one.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def shares(mean: NDArray[np.float64], ranks: NDArray[np.int64]) -> dict[tuple[int, ...], float]:
    """Return the share of the variance for every axis and every pair of axes; empty where nothing varies.

    Args:
        mean: (n,) of every spec of a full grid.
        ranks: (n, d) of each spec's values among its axes' values.
    """
    grid = full(mean, ranks)
    total = float(grid.var())
    if total <= np.finfo(float).eps * max(1.0, float(np.abs(grid).max()) ** 2):
        return {}
    axes = range(grid.ndim)
    found: dict[tuple[int, ...], float] = {(i,): _variance(grid, (i,)) / total for i in axes}
    pairs: dict[tuple[int, ...], float] = {
        (i, j): max(0.0, _variance(grid, (i, j)) / total - found[i,] - found[j,])
        for i, j in combinations(axes, 2)
    }
    return found | pairs


def full(values: NDArray[np.float64], ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values of a full grid as an array with one dimension for each axis."""
    grid = np.empty(tuple(int(count) for count in ranks.max(axis=0) + 1))
    grid[tuple(ranks.T)] = values
    return grid


def _variance(grid: NDArray[np.float64], kept: tuple[int, ...]) -> float:
    others = tuple(axis for axis in range(grid.ndim) if axis not in kept)
    return float(grid.mean(axis=others).var())
