import tracemalloc

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from tuner.search import kernel
from tuner.search.kernel import PowerMatern

OURS = PowerMatern(1.5, (0.4, 2.0), 0.6, 0.05)
THEIRS = (
    ConstantKernel(1.5) * Matern([0.4, 2.0], nu=2.5)
    + ConstantKernel(0.6) * DotProduct(0.5, "fixed")
    + WhiteKernel(0.05)
)
POINTS = np.random.default_rng(0).random((7, 2))
OTHERS = np.random.default_rng(1).random((4, 2))


def test_kernel_is_the_sum_of_its_parts():
    assert np.allclose(OURS(POINTS), THEIRS(POINTS))
    assert np.allclose(OURS(POINTS, OTHERS), THEIRS(POINTS, OTHERS))
    assert np.allclose(OURS.theta, THEIRS.theta)


def test_kernel_gradient_is_that_of_the_sum():
    ours, gradient = OURS(POINTS, eval_gradient=True)
    _, expected = THEIRS(POINTS, eval_gradient=True)
    assert gradient.shape == (7, 7, OURS.n_dims)
    assert np.allclose(gradient, expected)
    assert np.allclose(ours, OURS(POINTS))


def test_kernel_diagonal_is_that_of_the_covariance_without_noise():
    assert np.allclose(OURS.diag(POINTS), np.diag(OURS(POINTS, POINTS)))


def test_clone_with_other_hyperparameters_leaves_the_kernel_unchanged():
    other = OURS.clone_with_theta(OURS.theta + 0.1)
    assert other.amplitude == pytest.approx(1.5 * np.exp(0.1))
    assert OURS.amplitude == 1.5
    assert len(OURS.bounds) == OURS.n_dims


def test_covariance_of_many_points_is_that_of_each(monkeypatch: pytest.MonkeyPatch):
    whole = OURS(POINTS, OTHERS)
    monkeypatch.setattr(kernel, "MOST_DIFFERENCES", 2 * OTHERS.size + 1)
    assert np.array_equal(OURS(POINTS, OTHERS), whole)


def test_covariance_of_many_specs_with_many_categories_fits_in_memory():
    specs, trials = np.zeros((20_000, 250)), np.zeros((30, 250))
    wide = PowerMatern(1.0, (0.5,) * 250, 0.6, 0.05)
    tracemalloc.start()
    try:
        assert wide(specs, trials).shape == (20_000, 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * 2**20, "the differences of all would take 1.2 GB"
