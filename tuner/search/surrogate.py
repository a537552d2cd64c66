"""A scikit-optimize Gaussian process for few points, with priors on its hyperparameters and a linear part.

scikit-optimize alone maximises the marginal likelihood, which a handful of points does not determine: an axis
on which they happen to agree would stay without effect for ever. Here each hyperparameter has a prior, and
the posterior's mode is taken. The linear part beside the Matern one extrapolates power laws, which
throughput, latency and memory follow.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning
from skopt.learning import GaussianProcessRegressor

from tuner.search.kernel import PowerMatern
from tuner.search.problem import Floats

_JITTER = 1e-8
"""Variance that is added to each standardised value, so that the covariance matrix can be factored."""
_LEAST_DEVIATION = 1e-5
"""Least standard deviation of a prediction of the standardised target, as others divide by it."""
TYPICAL_SCALE = 0.7
"""Typical standard deviation of a logarithm over a space, a factor of two. Divided by the square root of the
number of values, it is the least scale of a target: two equal values do not make a process flat."""


@dataclass(frozen=True)
class Prior:
    """Log-normal priors of the hyperparameters, for a standardised target on axes from 0 to 1.

    Each hyperparameter (see `PowerMatern`) has its median, and the standard deviation of its logarithm
    (`_spread`).
    """

    amplitude: float = 1.0
    amplitude_spread: float = 1.0
    length: float = 0.6
    length_spread: float = 0.7
    slope: float = 0.6
    slope_spread: float = 1.0
    noise: float = 1e-2
    noise_spread: float = 1.5


@dataclass(frozen=True)
class Posterior:
    """Mean and deviation at each point."""

    mean: Floats
    deviation: Floats
    """Standard deviation of the function, without the noise of a measurement."""


class Surrogate:
    """A Gaussian process that is fitted to its points on construction."""

    def __init__(
        self,
        points: Floats,
        values: Floats,
        noise: Floats | None,
        prior: Prior,
        *,
        steps: int,
        scale: float | None = None,
    ) -> None:
        """Learn from (m, d) points and (m,) values.

        Args:
            points: on axes from 0 to 1.
            values: any scale.
            noise: (m,) known standard deviation of each value, in addition to the learned one.
            prior: of the hyperparameters.
            steps: most iterations of the search for the mode.
            scale: one unit of the standardised target, in the unit of the values; None takes the standard
                deviation of the values, or more if they are few (`TYPICAL_SCALE`).
        """
        self._shift = float(values.mean())
        least = TYPICAL_SCALE / math.sqrt(len(values))
        self._scale = scale if scale is not None else max(float(values.std()), least)
        known_variance = 0.0 if noise is None else (noise / self._scale) ** 2
        alpha = known_variance + _JITTER
        kernel, median, spread = _kernel(points.shape[1], prior)
        optimizer = _posterior_mode(median, spread, steps)
        self._model = GaussianProcessRegressor(
            kernel=kernel, alpha=alpha, optimizer=optimizer, noise=None, normalize_y=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a mode at a bound is fine
            self._model.fit(points, (values - self._shift) / self._scale)

    @property
    def noise(self) -> float:
        """Learned standard deviation of a value, in addition to the known one."""
        return self._scale * math.sqrt(self._model.kernel_.noise)

    def predict(self, points: Floats) -> Posterior:
        """Return the posterior at (k, d) points."""
        mean, deviation = self._model.predict(points, return_std=True)
        return Posterior(
            self._shift + self._scale * mean, self._scale * np.maximum(deviation, _LEAST_DEVIATION)
        )

    def draw(self, points: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Return (count, k) draws from the posterior at (k, d) points."""
        mean, covariance = self._model.predict(points, return_cov=True)
        covariance -= self._model.kernel_.noise * np.eye(len(points))  # see PowerMatern.__call__
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding makes some eigenvalues negative
        drawn = mean + rng.standard_normal((count, len(points))) @ root.T
        return np.asarray(self._shift + self._scale * drawn)


def _kernel(axes: int, prior: Prior) -> tuple[PowerMatern, Floats, Floats]:
    """Return the kernel at the prior's medians, then the (axes + 3,) medians and spreads of its theta."""
    kernel = PowerMatern(prior.amplitude, (prior.length,) * axes, prior.slope, prior.noise)
    spread = [prior.amplitude_spread, *[prior.length_spread] * axes, prior.slope_spread, prior.noise_spread]
    return kernel, kernel.theta, np.array(spread)


NegativeLogLikelihood = Callable[[Floats], tuple[float, Floats]]
"""theta → negative log marginal likelihood and its gradient."""


def _posterior_mode(
    median: Floats, spread: Floats, steps: int
) -> Callable[[NegativeLogLikelihood, Floats, Floats], tuple[Floats, float]]:
    """Return an optimiser in scikit-learn's form that maximises the likelihood times a log-normal prior.

    Args:
        median: of each element of theta, the logarithms of the hyperparameters.
        spread: prior standard deviation of each element of theta.
        steps: most iterations.
    """

    def optimizer(likelihood: NegativeLogLikelihood, start: Floats, bounds: Floats) -> tuple[Floats, float]:
        def negative_log_posterior(theta: Floats) -> tuple[float, Floats]:
            value, gradient = likelihood(theta)
            away = (theta - median) / spread
            return value + 0.5 * float(away @ away), gradient + away / spread

        result = optimize.minimize(
            negative_log_posterior,
            start,
            jac=True,
            bounds=bounds,
            method="L-BFGS-B",
            options={"maxiter": steps},
        )
        return result.x, float(result.fun)

    return optimizer
