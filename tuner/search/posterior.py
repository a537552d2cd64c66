"""The model of the space: objective, margins and probability of booting of every spec."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from tuner.search.problem import Floats, Integers, Problem, TrialObservation, features
from tuner.search.surrogate import Posterior, Prior, Surrogate

# The priors of the three kinds of processes, chosen on the services of the public tables
# (`benchmarks/search_quality.py`).
OBJECTIVE = Prior(length=0.6, slope=0.6, noise=3e-3)
MARGIN = Prior(length=0.8, slope=1.0, noise=1e-3)
BOOTS = Prior(length=0.6, slope=0.5, noise=1e-2, noise_spread=1.0)
STEPS = 15
"""Most iterations of a fit of hyperparameters: predictions are as good near the mode as at it, and take a
third of the time."""
BOOT_SPREAD = 0.3
"""Uncertainty of the border between specs that boot and specs that do not, on a scale from -1 to 1."""

UNKNOWN = 100.0
"""Standard deviation of the noise of a log objective without a measurement: with it the posterior equals the
prior."""


@dataclass(frozen=True)
class TransferPrior:
    """The prediction of earlier experiments for each of the n specs, weighted by the trust in them."""

    objective: Floats
    """Log objective, up to a constant."""
    margins: tuple[Floats, ...]
    """Margin of each constraint, with this problem's bounds."""
    boots: Floats
    """From -1 (never) to 1 (always)."""
    scale: float
    """Typical distance of a service from the others' prediction, in log objective."""
    margin_scale: float
    """The same for the margins."""
    weights: tuple[tuple[str, float], ...]
    """Weight of each earlier experiment; their sum is the trust in all of them, at most 1."""


@dataclass(frozen=True)
class Prediction:
    """The model's prediction for each of the n specs."""

    objective: Posterior
    """Log objective."""
    margins: tuple[Posterior, ...]
    """Margin of each constraint."""
    p_meets: Floats
    """Probability that a spec meets every constraint, given that it boots."""
    p_boots: Floats
    """Probability that a spec boots (`TrialObservation.boots`)."""
    repeatability: float
    """Standard deviation of the log objective between trials of one spec, beyond their own intervals."""


@dataclass(frozen=True)
class SpaceModel:
    """Gaussian processes over the space. Except for `p_boots`, at least one observation must boot."""

    problem: Problem
    observations: Sequence[TrialObservation]
    prior: TransferPrior | None = None
    _points: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_points", features(self.problem))

    @cached_property
    def prediction(self) -> Prediction:
        """The prediction for every spec."""
        objective = self._shifted(self._objective.predict(self._points), self._prior_objective)
        margins = tuple(
            self._shifted(margin.predict(self._points), self._prior_margin(k))
            for k, margin in enumerate(self._margins)
        )
        return Prediction(
            objective, margins, _p_meets(margins, self.problem.size), self.p_boots, self._objective.noise
        )

    def draw(self, rows: Integers, count: int, rng: np.random.Generator) -> tuple[Floats, np.ndarray]:
        """Return joint draws for k specs: (count, k) log objectives, and whether each is feasible."""
        points = self._points[rows]
        objective = self._objective.draw(points, count, rng) + self._prior_objective[rows]
        is_feasible = rng.random((count, len(rows))) < self.p_boots[rows]
        for k, margin in enumerate(self._margins):
            is_feasible &= margin.draw(points, count, rng) + self._prior_margin(k)[rows] <= 0
        return objective, is_feasible

    @cached_property
    def _running(self) -> list[TrialObservation]:
        return [seen for seen in self.observations if seen.boots]

    @cached_property
    def _prior_objective(self) -> Floats:
        """(n,) prior mean of the log objective: from earlier experiments, else that of the problem."""
        if self.prior is not None:
            return self.prior.objective
        expected = self.problem.expected
        return np.zeros(self.problem.size) if expected is None else expected

    def _prior_margin(self, constraint: int) -> Floats:
        """Return the (n,) prior mean of the margin of the constraint with this index."""
        if self.prior is not None:
            return self.prior.margins[constraint]
        expected = self.problem.expected_margins
        return np.zeros(self.problem.size) if expected is None else expected[:, constraint]

    @cached_property
    def _objective(self) -> Surrogate:
        measured = [
            (seen.index, seen.log_objective, seen.noise)
            for seen in self._running
            if seen.log_objective is not None
        ]
        if not measured:
            expected = self._prior_objective
            measured = [(seen.index, float(expected[seen.index]), UNKNOWN) for seen in self._running]
        rows, values, noise = zip(*measured, strict=True)
        return self._residual(
            rows, values, noise, expected=self._prior_objective, prior=OBJECTIVE, typical=self._scale
        )

    @cached_property
    def _margins(self) -> tuple[Surrogate, ...]:
        return tuple(
            self._residual(
                [seen.index for seen in self._running],
                [seen.margins[k] for seen in self._running],
                [seen.margin_noise for seen in self._running],
                expected=self._prior_margin(k),
                prior=MARGIN,
                typical=self._margin_scale,
            )
            for k in range(self.problem.constraints)
        )

    @property
    def _scale(self) -> float | None:
        return None if self.prior is None else self.prior.scale

    @property
    def _margin_scale(self) -> float | None:
        return None if self.prior is None else self.prior.margin_scale

    def _residual(
        self,
        rows: Sequence[int],
        values: Sequence[float],
        noise: Sequence[float],
        *,
        expected: Floats,
        prior: Prior,
        typical: float | None,
    ) -> Surrogate:
        """Return a process fitted to the differences of m measured values from their prior means.

        Args:
            rows: (m,) row of each measured spec.
            values: (m,) measured values.
            noise: (m,) standard deviation of each value.
            expected: (n,) prior mean of every spec.
            prior: of the process's hyperparameters.
            typical: typical difference from the prior mean, the least scale of the process; None lets the
                process choose its scale.
        """
        at = np.array(rows, dtype=np.int64)
        residuals = np.array(values) - expected[at]
        scale = None if typical is None else max(float(residuals.std()), typical)
        return Surrogate(self._points[at], residuals, np.array(noise), prior, steps=STEPS, scale=scale)

    @staticmethod
    def _shifted(residual: Posterior, expected: Floats) -> Posterior:
        """Return the posterior of the values, from that of their differences from the prior mean."""
        return Posterior(residual.mean + expected, residual.deviation)

    @cached_property
    def p_boots(self) -> Floats:
        """(n,): probability that each spec boots, from a process over -1 (does not) and 1 (boots).

        Its prior mean is that of earlier experiments, else the mean of the observations.
        """
        outcomes = np.array([1.0 if observation.boots else -1.0 for observation in self.observations])
        expected = np.full(self.problem.size, outcomes.mean()) if self.prior is None else self.prior.boots
        if self.prior is None and (outcomes > 0).all():
            return np.ones(self.problem.size)
        rows = [observation.index for observation in self.observations]
        process = Surrogate(
            self._points[rows], outcomes - expected[rows], None, BOOTS, steps=STEPS, scale=1.0
        )
        latent = self._shifted(process.predict(self._points), expected)
        return np.asarray(ndtr(latent.mean / np.hypot(latent.deviation, BOOT_SPREAD)), dtype=np.float64)


def _p_meets(margins: Sequence[Posterior], size: int) -> Floats:
    """Return the (n,) probability that every margin is at most 0, with independent margins."""
    p_meets = np.ones(size)
    for margin in margins:
        p_meets = p_meets * ndtr(-margin.mean / margin.deviation)
    return p_meets


def predict(
    problem: Problem, observations: Sequence[TrialObservation], prior: TransferPrior | None = None
) -> Prediction:
    """Return the prediction for every spec after these observations, at least one of which boots."""
    return SpaceModel(problem, observations, prior).prediction
