"""The true values of a space's specs, from several measurements of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from tuner.search.problem import Observation

NEAR = math.log(2)
"""Distance to the best mean up to which specs share its variance: the slowest specs vary more."""


@dataclass(frozen=True)
class Truth:
    """The values of the n specs, from all rounds."""

    values: np.ndarray
    """(n, rounds): log objective less the mean effect of the round: a machine is faster at times."""
    mean: np.ndarray
    """(n,): of these; -inf where the spec failed, does not meet the constraints on average, or was left out of a
    round."""
    margins: np.ndarray
    """(n,): mean of the worst margin; inf where the spec failed."""
    deviation: float
    """Of one measurement from the next, of specs near the best."""
    reach: float
    """Half of the 95 % interval of a mean."""

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


def truth(rounds: Sequence[Sequence[Observation | None]]) -> Truth:
    """Return the truth of each spec; the standard error of a mean comes from all specs near the best.

    Args:
        rounds: of each, an observation of every spec, in the order of the space; None if it was left out.
    """
    by_spec = [[seen for seen in trials if seen is not None] for trials in zip(*rounds, strict=True)]
    ran = np.array([len(trials) == len(rounds) and all(seen.boots for seen in trials) for trials in by_spec])
    values = np.array(
        [
            [seen.log_objective or 0.0 for seen in trials] + [0.0] * (len(rounds) - len(trials))
            for trials in by_spec
        ]
    )
    meets = np.array([runs and _meets(trials) for runs, trials in zip(ran, by_spec, strict=True)])
    effect = values[ran].mean(axis=0)
    values = values - (effect - effect.mean())
    mean = np.where(meets, values.mean(axis=1), -np.inf)
    like_the_best = mean >= mean.max() - NEAR
    # Each spec's mean, and all rounds' but one, are taken from the data.
    freedom = max(1, (int(like_the_best.sum()) - 1) * (len(rounds) - 1))
    residuals = (values - values.mean(axis=1, keepdims=True))[like_the_best]
    deviation = math.sqrt(float((residuals**2).sum()) / freedom) if len(rounds) > 1 else math.nan
    return Truth(
        values=values,
        mean=mean,
        margins=np.array([np.mean([_worst(seen) for seen in trials]) for trials in by_spec]),
        deviation=deviation,
        reach=float(student.ppf(0.975, freedom)) * deviation / math.sqrt(len(rounds)),
    )


def _meets(trials: Sequence[Observation]) -> bool:
    return not np.any(np.mean([seen.margins for seen in trials], axis=0) > 0)


def _worst(seen: Observation) -> float:
    return max(seen.margins) if seen.boots else math.inf
