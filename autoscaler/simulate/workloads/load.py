"""The load that a simulated service gets: requests, or their sums of each second where they are too many."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Requests:
    """Each request, in order of arrival."""

    times: Floats
    """Seconds from the start of the run."""
    work: Floats
    """In the unit of `Replica.rate`."""
    service: Floats
    """Seconds that each takes in its slot."""

    def per_second(self, seconds: int) -> "Flow":
        """Return the sums of each second."""
        bins = np.arange(seconds + 1)
        arrivals, _ = np.histogram(self.times, bins)
        work, _ = np.histogram(self.times, bins, weights=self.work)
        return Flow(arrivals.astype(np.float64), work.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests and their work, summed over each second."""

    arrivals: Floats
    work: Floats

    def per_second(self, seconds: int) -> "Flow":
        """Return the first `seconds`."""
        return Flow(self.arrivals[:seconds], self.work[:seconds])


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica does."""

    rate: float
    """Work per second, with every slot busy."""
    concurrency: int
    """Slots: requests that are served at the same time, each at an equal share of the rate."""
    service_seconds: float
    """Mean time of a request in its slot."""


TIMEOUT = 300
"""Seconds after which a request that waits is given up; it counts as a violation."""
