"""The load of a simulated service: single requests, or sums per second of too many requests. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Requests:
    """Single requests, in order of arrival."""

    times: Floats
    """Arrival, in seconds from the start of the run."""
    work: Floats
    """Work in the unit of `Replica.rate`."""
    service: Floats
    """Service time of each in a slot, in seconds."""

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
    """The capacity of one replica."""

    rate: float
    """Work per second with every slot busy."""
    concurrency: int
    """Slots: concurrently served requests, each at an equal share of the rate."""
    service_seconds: float
    """Mean service time of a request, in seconds."""


TIMEOUT = 300
"""Seconds after which a waiting request is abandoned; it counts as a violation."""
