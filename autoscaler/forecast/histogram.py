"""A histogram with exponential decay: quantiles of recent errors in bounded memory and constant time."""

import math
from array import array
from collections.abc import Sequence
from functools import cache

LIMIT = 8.0
"""Standard deviations at which larger errors are cut."""
WIDTH = 0.1
"""Standard deviations of a bin: sizing by whole replicas needs no finer resolution."""
BINS = round(2 * LIMIT / WIDTH)
PRIOR_SCALE = 1.0
"""Scale of the Laplace distribution of the prior, which has heavier tails than a normal distribution."""
FULL = 1e100
"""Weight at which all weights are rescaled: the weight of new errors grows instead of decaying every bin."""


class DecayedHistogram:
    """Errors in standard deviations, whose weights decay exponentially with age."""

    def __init__(self, memory: float, prior: float) -> None:
        """Start with a heavy-tailed prior.

        Args:
            memory: observations after which an observation's weight is 1/e.
            prior: weight of the prior, in observations.
        """
        self._growth = math.exp(1 / memory)
        self._newest_weight = 1.0
        """Weight of the newest observation, which grows by a factor with each."""
        weights, self._total = _scaled_prior(prior)
        self._weights = weights[:]
        """Weight of each bin, from errors of -`LIMIT` up."""
        self._quantiles: dict[float, float] = {}
        """By share, until the next error: a forecast that has no value yet has no errors for days."""

    def add(self, error: float, weight: float = 1.0) -> None:
        """Count an error; NaN is ignored."""
        if error != error:  # noqa: PLR0124 NaN alone differs from itself
            return
        if error >= LIMIT:
            index = BINS - 1
        elif error <= -LIMIT:
            index = 0
        else:
            index = int((error + LIMIT) / WIDTH)
            if index == BINS:  # by rounding
                index -= 1
        self._newest_weight *= self._growth
        added = self._newest_weight * weight
        self._weights[index] += added
        self._total += added
        self._quantiles.clear()
        if self._newest_weight > FULL:
            self._rescale()

    def quantile(self, share: float) -> float:
        """Return the `share` quantile of the errors, interpolated within its bin."""
        if share not in self._quantiles:
            # The weight above the quantile is taken from the bins, the highest first.
            above, upper_edge = (1 - share) * self._total, BINS
            for weight in reversed(self._weights):
                if weight >= above or upper_edge == 1:
                    break
                above -= weight
                upper_edge -= 1
            share_of_bin = min(above / weight, 1.0) if weight > 0 else 0.0
            self._quantiles[share] = (upper_edge - share_of_bin) * WIDTH - LIMIT
        return self._quantiles[share]

    def state(self) -> list[float]:
        """Return the weights of the bins, relative to the weight of the newest observation."""
        return [weight / self._newest_weight for weight in self._weights]

    def restore(self, weights: Sequence[float]) -> None:
        """Restore weights that `state` returned; invalid weights, and those of other bins, are ignored."""
        if len(weights) == BINS and all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0:
            self._weights = array("d", weights)
            self._newest_weight, self._total = 1.0, sum(weights)
            self._quantiles.clear()

    def map(self, factor: float, offset: float = 0.0) -> None:
        """Multiply each error by `factor`, above 0, and add `offset`; errors that were cut stay so."""
        mapped = array("d", [0.0] * BINS)
        mapped[0], mapped[-1] = self._weights[0], self._weights[-1]
        for i in range(1, BINS - 1):
            # Edges of the mapped bin in bins; its weight is even between them.
            low = (factor * (i * WIDTH - LIMIT) + offset + LIMIT) / WIDTH
            high = low + factor
            first, last = (min(max(math.floor(edge), 0), BINS - 1) for edge in (low, high))
            for index in range(first, last + 1):
                begin = low if index == first else index
                end = high if index == last else index + 1
                mapped[index] += self._weights[i] * (end - begin) / factor
        self._weights, self._total = mapped, sum(mapped)
        self._quantiles.clear()

    def _rescale(self) -> None:
        self._weights = array("d", self.state())
        self._total = sum(self._weights)
        self._newest_weight = 1.0


def _laplace(low: float, high: float) -> float:
    """Return the probability between two errors by the prior."""

    def below(x: float) -> float:
        tail = 0.5 * math.exp(-abs(x) / PRIOR_SCALE)
        return tail if x < 0 else 1 - tail

    return below(high) - below(low)


_PRIOR = tuple(_laplace(i * WIDTH - LIMIT, (i + 1) * WIDTH - LIMIT) for i in range(BINS))


@cache
def _scaled_prior(weight: float) -> tuple["array[float]", float]:
    """Return the weights of the bins by a prior of this weight, and their sum."""
    weights = array("d", [weight * share for share in _PRIOR])
    return weights, sum(weights)
