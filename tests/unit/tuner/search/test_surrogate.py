import numpy as np
import pytest

from tuner.search.surrogate import Prior, Surrogate

PRIOR = Prior()


def fitted(points: np.ndarray, values: np.ndarray, **more) -> Surrogate:
    return Surrogate(points, values, None, PRIOR, steps=15, **more)


def test_a_power_law_is_extrapolated():
    points = np.linspace(0, 0.6, 6)[:, None]
    posterior = fitted(points, 2 + 3 * points[:, 0]).predict(np.ones((1, 1)))
    assert posterior.mean[0] == pytest.approx(5, abs=0.3)


def test_mean_is_close_to_exact_measurements():
    rng = np.random.default_rng(0)
    points = rng.random((12, 2))
    values = np.sin(4 * points[:, 0]) + points[:, 1]
    posterior = fitted(points, values).predict(points)
    assert np.abs(posterior.mean - values).max() < 0.1


def test_deviation_grows_along_an_axis_that_was_not_varied():
    points = np.column_stack([np.linspace(0, 1, 6), np.full(6, 0.5)])
    surrogate = fitted(points, points[:, 0] ** 2)
    near, far = (surrogate.predict(np.array([[0.5, other]])).deviation[0] for other in (0.5, 1.0))
    assert far > 3 * near


def test_known_noise_is_not_fitted():
    points = np.linspace(0, 1, 8)[:, None]
    values = np.where(np.arange(8) == 4, 1.0, 0.0)
    trusted, doubted = (
        Surrogate(points, values, noise, PRIOR, steps=15).predict(points[4:5]).mean[0]
        for noise in (np.full(8, 1e-3), np.where(np.arange(8) == 4, 3.0, 1e-3))
    )
    assert trusted > 0.7
    assert doubted < 0.3


def test_draws_have_the_mean_and_spread_of_the_prediction():
    rng = np.random.default_rng(1)
    points = rng.random((6, 2))
    surrogate = fitted(points, points.sum(axis=1))
    at = rng.random((5, 2))
    posterior, drawn = surrogate.predict(at), surrogate.draw(at, 4000, rng)
    assert drawn.mean(axis=0) == pytest.approx(posterior.mean, abs=4 * posterior.deviation.max() / 63)
    assert drawn.std(axis=0) == pytest.approx(posterior.deviation, rel=0.15, abs=0.01)


def test_surrogate_is_fitted_to_one_point():
    posterior = fitted(np.array([[0.5]]), np.array([7.0]), scale=0.5).predict(np.array([[0.5], [1.0]]))
    assert posterior.mean[0] == pytest.approx(7.0)
    assert posterior.deviation[1] > posterior.deviation[0]
