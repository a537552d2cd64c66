"""The model of the space in the report: surfaces over two axes, curves along one, shares of the axes.

Values of the objective are geometric means, as the model predicts its logarithm.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tuner.report.convergence import SearchData
from tuner.report.evidence import Evidence
from tuner.report.schema import Choice, Curve, Model, Share, Surface

BAND = 1.96
"""Standard deviations to each side of a 95 % interval of a normal distribution."""
CELLS = 16
"""Most values of an axis that a surface shows: evenly chosen ones, and that of the spec it passes through."""
PAIRS = 28
"""Most surfaces, all pairs of eight axes: a page of hundreds would not open on a phone."""
_LARGEST = 700.0
"""Exponent of e up to which the power is a finite float: the greatest is 709."""


def model(evidence: Evidence, data: SearchData, chosen: Choice | None) -> Model | None:
    """Return the model around the recommended spec, else around the best expected one.

    None without enough data.
    """
    if not data.is_enough:
        return None
    prediction = data.prediction
    meets: NDArray[np.float64] = prediction.p_meets * prediction.p_boots  # (n,)
    around = (
        chosen.spec
        if chosen is not None and chosen.spec is not None
        else _best_expected(prediction.objective.mean, meets)
    )
    # The search maximises: it has the negative logarithm of an objective that is minimised.
    mean = prediction.objective.mean if evidence.maximized else -prediction.objective.mean
    ranks = evidence.space.ranks()
    by_axes = shares(mean, ranks)
    grid = PredictionGrid.of(ranks, mean, prediction.objective.deviation, meets, around)
    share_of_axis = {axes[0]: share for axes, share in by_axes.items() if len(axes) == 1}
    return Model(
        observations=len(data.observations),
        around=around,
        surfaces=surfaces(grid, share_of_axis),
        curves=curves(grid),
        shares=[Share(axes=list(axes), share=share) for axes, share in by_axes.items()],
    )


def _best_expected(mean: NDArray[np.float64], meets: NDArray[np.float64]) -> int:
    """Return the row of the best expected spec that may be recommended.

    A spec may be if it is at least half as likely as the likeliest one to run and meet every constraint.

    Args:
        mean: (n,) expected log objective, maximised.
        meets: (n,) probability that a spec runs and meets every constraint.
    """
    return int(np.argmax(np.where(meets >= meets.max() / 2, mean, -np.inf)))


@dataclass(frozen=True)
class PredictionGrid:
    """Predictions of every spec, as arrays with one dimension for each axis."""

    mean: NDArray[np.float64]
    """Means of the logarithm of the objective in natural units."""
    deviation: NDArray[np.float64]
    """Standard deviations of that logarithm."""
    meets: NDArray[np.float64]
    """Probability that a spec runs and meets every constraint."""
    around: tuple[int, ...]
    """Ranks of the spec that the slices pass through."""

    @classmethod
    def of(
        cls,
        ranks: NDArray[np.int64],
        mean: NDArray[np.float64],
        deviation: NDArray[np.float64],
        meets: NDArray[np.float64],
        around: int,
    ) -> "PredictionGrid":
        """Return the grid of n specs' predictions.

        `ranks` is (n, d); `mean`, `deviation` and `meets` are (n,); `around` is the row of a spec.
        """
        here = tuple(int(rank) for rank in ranks[around])
        return cls(full(mean, ranks), full(deviation, ranks), full(meets, ranks), here)


def surfaces(grid: PredictionGrid, share_of_axis: dict[int, float]) -> list[Surface]:
    """Return a surface of every pair of axes with several values, at most PAIRS.

    Pairs of the axes with the largest shares of the variance come first.
    """
    axes = [axis for axis in range(grid.mean.ndim) if grid.mean.shape[axis] > 1]
    ordered = sorted(axes, key=lambda axis: (-share_of_axis.get(axis, 0.0), axis))
    pairs = sorted(combinations(range(len(ordered)), 2), key=sum)[:PAIRS]
    return [_surface(grid, ordered[i], ordered[j]) for i, j in pairs]


def _surface(grid: PredictionGrid, x: int, y: int) -> Surface:
    columns = thinned(grid.mean.shape[x], grid.around[x])
    rows = thinned(grid.mean.shape[y], grid.around[y])

    def cut(values: NDArray[np.float64]) -> NDArray[np.float64]:
        where = tuple(slice(None) if axis in {x, y} else rank for axis, rank in enumerate(grid.around))
        plane = values[where]
        # Its dimensions are in the order of the axes; the rows of a surface are always y.
        return (plane.T if x < y else plane)[np.ix_(rows, columns)]

    return Surface(
        x=x,
        y=y,
        x_ranks=columns,
        y_ranks=rows,
        mean=natural(cut(grid.mean)).tolist(),
        deviation=cut(grid.deviation).tolist(),
        meets=cut(grid.meets).tolist(),
    )


def thinned(values: int, keep: int) -> list[int]:
    """Return at most CELLS ranks of an axis: its ends, evenly spaced ones between, and `keep`."""
    if values <= CELLS:
        return list(range(values))
    even = {round(i * (values - 1) / (CELLS - 1)) for i in range(CELLS)}
    if keep not in even:
        inner = sorted(even - {0, values - 1}, key=lambda rank: abs(rank - keep))
        even = even - {inner[0]} | {keep}
    return sorted(even)


def curves(grid: PredictionGrid) -> list[Curve]:
    """Return the curve of every axis with several values.

    The average over the rest of the space is the partial dependence of J. Friedman, "Greedy function
    approximation", Annals of Statistics 29 (2001). Its band is of the mean deviation, an upper bound of the
    deviation of the mean, as the correlation between specs is unknown.
    """
    return [_curve(grid, axis) for axis in range(grid.mean.ndim) if grid.mean.shape[axis] > 1]


def _curve(grid: PredictionGrid, axis: int) -> Curve:
    others = tuple(each for each in range(grid.mean.ndim) if each != axis)
    ranks = thinned(grid.mean.shape[axis], grid.around[axis])
    where = tuple(slice(None) if each == axis else rank for each, rank in enumerate(grid.around))
    mean = grid.mean.mean(axis=others)[ranks]
    deviation = grid.deviation.mean(axis=others)[ranks]
    return Curve(
        axis=axis,
        ranks=ranks,
        mean=natural(mean).tolist(),
        low=natural(mean - BAND * deviation).tolist(),
        high=natural(mean + BAND * deviation).tolist(),
        slice=natural(grid.mean[where][ranks]).tolist(),
        meets=grid.meets[where][ranks].tolist(),
    )


def natural(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values of the objective from their logarithms, clipped to finite ones."""
    return np.asarray(np.exp(np.clip(logs, -_LARGEST, _LARGEST)), dtype=np.float64)


def shares(mean: NDArray[np.float64], ranks: NDArray[np.int64]) -> dict[tuple[int, ...], float]:
    """Return the share of the variance due to every axis and every pair of axes; empty if nothing varies.

    Functional ANOVA of a full grid (Hutter, Hoos and Leyton-Brown, An efficient approach for assessing
    hyperparameter importance, ICML 2014): a main effect is the variance of the means over all other axes; an
    interaction is the variance of the joint means beyond the two main effects. The shares of all subsets of
    axes add up to one.

    Args:
        mean: (n,) of every spec of a full grid.
        ranks: (n, d) of each spec's values among its axes' values.
    """
    grid = full(mean, ranks)
    total = float(grid.var())
    if total <= np.finfo(float).eps * max(1.0, float(np.abs(grid).max()) ** 2):
        return {}
    axes = range(grid.ndim)
    single: dict[tuple[int, ...], float] = {(i,): _variance(grid, (i,)) / total for i in axes}
    pairs: dict[tuple[int, ...], float] = {
        (i, j): max(0.0, _variance(grid, (i, j)) / total - single[i,] - single[j,])
        for i, j in combinations(axes, 2)
    }
    return single | pairs


def full(values: NDArray[np.float64], ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values of a full grid as an array with one dimension for each axis."""
    grid = np.empty(tuple(int(count) for count in ranks.max(axis=0) + 1))
    grid[tuple(ranks.T)] = values
    return grid


def _variance(grid: NDArray[np.float64], kept: tuple[int, ...]) -> float:
    """Return the variance, over the kept axes, of the means over all other axes."""
    others = tuple(axis for axis in range(grid.ndim) if axis not in kept)
    return float(grid.mean(axis=others).var())
