"""The true values of a space's specs, from several measurements of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from tuner.search.problem import TrialObservation

NEAR = math.log(2)
"""Distance to the best mean up to which specs share its variance: the slowest specs vary more."""


@dataclass(frozen=True)
class Truth:
    """The values of the n specs, from all rounds."""

    values: np.ndarray
    """(n, rounds): log objective less the median effect of the round: a machine is faster at times; NaN where
    the spec was left out."""
    mean: np.ndarray
    """(n,): of the rounds that measured the spec; -inf where it failed or does not meet the constraints on
    average."""
    margins: np.ndarray
    """(n,): mean of the worst margin; inf where the spec failed."""
    deviation: float
    """Of one measurement from the next, of specs near the best."""
    reach: float
    """Half of the 95 % interval of the best mean."""

    @property
    def best(self) -> int:
        """Row of the best mean."""
        return int(np.argmax(self.mean))

    def contenders(self) -> list[int]:
        """Return the rows whose mean is at least half of the best."""
        return [int(row) for row in np.flatnonzero(self.mean >= self.mean[self.best] - NEAR)]

    def ratio(self, row: int | None) -> float:
        """Return the mean of a spec over the best."""
        return 0.0 if row is None else float(np.exp(self.mean[row] - self.mean[self.best]))

    def within(self, row: int | None) -> bool:
        """Whether a spec's mean lies in the interval of the best."""
        return row is not None and bool(self.mean[row] >= self.mean[self.best] - self.reach)


def truth(rounds: Sequence[Sequence[TrialObservation | None]]) -> Truth:
    """Return the truth of each spec; the standard error of a mean comes from all specs near the best.

    Args:
        rounds: of each, an observation of every spec, in the order of the space; None if it was left out.
    """
    by_spec = [[seen for seen in trials if seen is not None] for trials in zip(*rounds, strict=True)]
    ran = np.array([all(seen.boots for seen in trials) for trials in by_spec])
    values = np.array(
        [
            [
                math.nan if seen is None or seen.log_objective is None else seen.log_objective
                for seen in trials
            ]
            for trials in zip(*rounds, strict=True)
        ]
    )
    measured = ~np.isnan(
        values
    )  # a spec that does not run, or breaks a constraint at its lowest load, has no value
    effect = np.median(values[ran & measured.all(axis=1)], axis=0)
    values = values - (effect - effect.mean())
    meets = np.array([runs and _meets(trials) for runs, trials in zip(ran, by_spec, strict=True)])
    means = np.nansum(values, axis=1) / np.maximum(measured.sum(axis=1), 1)
    mean = np.where(meets, means, -np.inf)
    best = int(np.argmax(mean))
    like_the_best = mean >= mean[best] - NEAR
    # Each spec's mean, and all rounds' but one, are taken from the data.
    freedom = max(1, int(measured[like_the_best].sum() - like_the_best.sum()) - (len(rounds) - 1))
    residuals = (values - means[:, None])[like_the_best & (measured.sum(axis=1) > 1)]
    deviation = math.sqrt(float(np.nansum(residuals**2)) / freedom) if len(rounds) > 1 else math.nan
    return Truth(
        values=values,
        mean=mean,
        margins=np.array([np.mean([_worst(seen) for seen in trials]) for trials in by_spec]),
        deviation=deviation,
        reach=float(student.ppf(0.975, freedom)) * deviation / math.sqrt(measured[best].sum()),
    )


def _meets(trials: Sequence[TrialObservation]) -> bool:
    return not np.any(np.mean([seen.margins for seen in trials], axis=0) > 0)


def _worst(seen: TrialObservation) -> float:
    return max(seen.margins) if seen.boots else math.inf
