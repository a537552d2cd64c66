"""The load of a simulated service: single requests, or sums per second of too many requests. Pure."""

from array import array
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""An array of one dimension."""


@dataclass(frozen=True, slots=True)
class UnqueuedService:
    """The service of requests if slots were unlimited, so that each request begins at its arrival."""

    ends: "array[float]"
    """The end of each request, in seconds from the start of the run, in ascending order."""
    numbers: "array[int]"
    """The request of each end, by its position in order of arrival."""
    served: "array[float]"
    """`served[n]`: the sum of the service times of the first `n` requests to end, in seconds."""
    busy: "array[int]"
    """Occupied slots just after each arrival, in order of arrival."""

    def in_slots(self, arrived: int, ended: int) -> list[tuple[float, float]]:
        """Return the end and the service time of each request in a slot, in order of their ends.

        Args:
            arrived: the number of requests that have begun, in order of arrival.
            ended: the number of them that have ended, in order of `ends`.
        """
        chosen: list[tuple[float, float]] = []
        position = ended
        while len(chosen) < arrived - ended:
            if self.numbers[position] < arrived:
                chosen.append((self.ends[position], self.served[position + 1] - self.served[position]))
            position += 1
        return chosen


@dataclass(frozen=True)
class Requests:
    """Single requests, in order of arrival."""

    times: Floats
    """Arrival, in seconds from the start of the run."""
    work: Floats
    """Work of each request, in the unit that `Replica.rate` counts per second."""
    service: Floats
    """Service time of each request in a slot, in seconds."""

    def per_second(self, seconds: int) -> "Flow":
        """Return the sums of each of the first `seconds`."""
        bins = np.arange(seconds + 1)
        arrivals, _ = np.histogram(self.times, bins)
        work, _ = np.histogram(self.times, bins, weights=self.work)
        return Flow(arrivals.astype(np.float64), work.astype(np.float64))

    @cached_property
    def unqueued(self) -> UnqueuedService:
        """The service of these requests if none of them waits."""
        ends = self.times + self.service
        numbers = np.argsort(ends, kind="stable")
        ends = ends[numbers]
        ended_before = np.searchsorted(ends, self.times, side="right")
        return UnqueuedService(
            ends=array("d", ends.tobytes()),
            numbers=array("q", numbers.tobytes()),
            served=array("d", np.concatenate([[0.0], np.cumsum(self.service[numbers])]).tobytes()),
            busy=array("q", (np.arange(1, len(ends) + 1) - ended_before).tobytes()),
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests and their work, summed over each second from the start of the run."""

    arrivals: Floats
    """Requests of each second."""
    work: Floats
    """Work of each second, in the unit that `Replica.rate` counts per second."""

    def per_second(self, seconds: int) -> "Flow":
        """Return the sums of each of the first `seconds`."""
        return Flow(self.arrivals[:seconds], self.work[:seconds])


@dataclass(frozen=True, slots=True)
class Replica:
    """The capacity of one replica."""

    rate: float
    """Work per second with every slot busy."""
    concurrency: int
    """Slots. Each slot serves one request, at `rate / concurrency`."""
    service_seconds: float
    """Mean service time of a request, in seconds."""


TIMEOUT = 300
"""Seconds after which a waiting request is abandoned; it counts as a violation."""
