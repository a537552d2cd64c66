"""The covariance of the search's Gaussian processes as one scikit-learn kernel.

It equals a sum of scikit-learn's kernels (constant x Matern + constant x dot product + white), which would
spend three times as long on the bookkeeping of five objects as on the mathematics.
"""

import math
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from tuner.search.problem import Floats

BOUNDS = {"amplitude": (1e-3, 1e3), "length": (0.05, 20.0), "slope": (1e-3, 1e3), "noise": (1e-6, 1.0)}
"""Least and greatest value of each hyperparameter, for a target of about unit variance on axes from 0 to 1:
variances in units of the target's, lengths in units of an axis."""
CENTRE = 0.25
"""Variance of the linear part's constant, divided by that of its slopes: without a constant every line would
pass through the origin of the axes."""

MOST_DIFFERENCES = 2**20
"""Most differences of coordinates at a time: 8 MiB."""


class PowerMatern(Kernel):  # type: ignore[misc] # scikit-learn has no types
    """amplitude x Matern 5/2 with a length for each axis + slope x (0.25 + x·y) + noise on the diagonal.

    The linear part stands for power laws, which are lines between logarithms.
    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 4.17, 4.19 and 5.9.
    """

    def __init__(self, amplitude: float, lengths: tuple[float, ...], slope: float, noise: float) -> None:
        self.amplitude = amplitude
        self.lengths = lengths
        self.slope = slope
        self.noise = noise

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
        """Return the constructor's arguments, which scikit-learn's `clone` needs."""
        return {
            "amplitude": self.amplitude,
            "lengths": self.lengths,
            "slope": self.slope,
            "noise": self.noise,
        }

    @property
    def theta(self) -> Floats:
        """Logarithms of the hyperparameters: amplitude, lengths, slope, noise."""
        return np.log([self.amplitude, *self.lengths, self.slope, self.noise])

    @theta.setter
    def theta(self, theta: Floats) -> None:
        self.amplitude, *lengths, self.slope, self.noise = (math.exp(value) for value in theta)
        self.lengths = tuple(lengths)

    def clone_with_theta(self, theta: Floats) -> "PowerMatern":
        """Return a kernel with other hyperparameters."""
        amplitude, *lengths, slope, noise = (math.exp(value) for value in theta)
        return PowerMatern(amplitude, tuple(lengths), slope, noise)

    @property
    def n_dims(self) -> int:
        """Number of hyperparameters."""
        return len(self.lengths) + 3

    @property
    def bounds(self) -> Floats:
        """Logarithms of the least and greatest value of each hyperparameter."""
        lengths = [BOUNDS["length"]] * len(self.lengths)
        return np.log([BOUNDS["amplitude"], *lengths, BOUNDS["slope"], BOUNDS["noise"]])

    def is_stationary(self) -> bool:
        """Return False: the linear part depends on where points are."""
        return False

    def diag(self, X: Floats) -> Floats:  # noqa: N803 scikit-learn's name
        """Return the variance of the function at each point, without noise."""
        return np.asarray(self.amplitude + self.slope * (CENTRE + (X**2).sum(axis=1)))

    def __call__(
        self,
        X: Floats,  # noqa: N803
        Y: Floats | None = None,  # noqa: N803
        eval_gradient: bool = False,  # noqa: FBT001, FBT002
    ) -> Any:
        """Return the (n, m) covariance of (n, d) points X with (m, d) points Y.

        Without Y, return the (n, n) covariance of X with itself, with noise on the diagonal; `eval_gradient`
        adds its (n, n, n_dims) gradient by theta.
        """
        if Y is not None and len(X) > (rows := max(1, MOST_DIFFERENCES // (Y.size or 1))):
            # With 250 categories, the differences of 100,000 specs to 60 trials would take 12 GB at once.
            return np.vstack([self(X[first : first + rows], Y) for first in range(0, len(X), rows)])
        other = X if Y is None else Y
        scaled = (X[:, None, :] - other[None, :, :]) / np.array(self.lengths)
        squares = scaled * scaled
        distance = np.sqrt(5.0 * squares.sum(axis=2))
        decay = np.exp(-distance)
        matern = self.amplitude * (1.0 + distance + distance**2 / 3.0) * decay
        linear = self.slope * (CENTRE + X @ other.T)
        covariance = matern + linear
        if Y is not None:
            return covariance
        white = self.noise * np.eye(len(X))
        if not eval_gradient:
            return covariance + white
        of_lengths = (self.amplitude * 5.0 / 3.0 * (1.0 + distance) * decay)[:, :, None] * squares
        gradient = np.concatenate(
            [matern[:, :, None], of_lengths, linear[:, :, None], white[:, :, None]], axis=2
        )
        return covariance + white, gradient
