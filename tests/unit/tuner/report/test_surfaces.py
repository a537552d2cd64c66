"""Surfaces and curves: slices and averages of predictions."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.report import surfaces
from tuner.report.surfaces import CELLS, PredictionGrid, curves, thinned

RANKS = np.array(list(product(range(2), range(3), range(4))), dtype=np.int64)
MEAN = RANKS @ np.array([0.1, 1.0, 10.0]) / 10
FLAT = np.full(len(RANKS), 0.2)


def grid(around: int = 0) -> PredictionGrid:
    return PredictionGrid.of(RANKS, MEAN, FLAT, FLAT, around)


def test_a_surface_keeps_the_other_axes_of_the_spec_that_it_passes_through():
    row = 17
    for surface in surfaces.surfaces(grid(row), {}):
        for j, b in enumerate(surface.y_ranks):
            for i, a in enumerate(surface.x_ranks):
                where = RANKS[row].copy()
                where[surface.x], where[surface.y] = a, b
                (index,) = np.flatnonzero((where == RANKS).all(axis=1))
                assert np.isclose(surface.mean[j][i], np.exp(MEAN[index]))


def test_surfaces_cover_every_pair_with_the_weightiest_axes_first():
    shown = surfaces.surfaces(grid(), {0: 0.1, 1: 0.2, 2: 0.7})
    assert [(s.x, s.y) for s in shown] == [(2, 1), (2, 0), (1, 0)]


def test_a_curve_averages_over_the_other_axes_but_its_slice_does_not():
    (curve,) = [curve for curve in curves(grid(23)) if curve.axis == 2]
    assert np.allclose(np.log(curve.mean), [MEAN[RANKS[:, 2] == rank].mean() for rank in range(4)])
    assert np.allclose(np.log(curve.slice), MEAN[20:24])
    assert all(low < mean < high for low, mean, high in zip(curve.low, curve.mean, curve.high, strict=True))


def test_an_axis_with_one_value_has_no_surface_and_no_curve():
    ranks = np.array([[0, 0], [0, 1]], dtype=np.int64)
    flat = np.zeros(2)
    one_axis = PredictionGrid.of(ranks, flat, flat, flat, 0)
    assert surfaces.surfaces(one_axis, {}) == []
    assert [curve.axis for curve in curves(one_axis)] == [1]


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_a_thinned_axis_keeps_its_ends_and_the_given_rank(pair: tuple[int, int]):
    values, keep = pair
    ranks = thinned(values, keep)
    assert ranks == sorted(set(ranks))
    assert {0, keep, values - 1} <= set(ranks)
    assert len(ranks) == min(values, CELLS)


def test_natural_values_are_finite_for_any_logarithm():
    assert np.isfinite(surfaces.natural(np.array([-1e9, 0.0, 1e9]))).all()
