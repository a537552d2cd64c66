"""The delivery of readings to a policy: at even times, late, in order, and some never. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delays and losses of readings, and further causes of decisions."""

    every: float = 5.0
    """Seconds between readings: the default is the scrape interval of the benchmark's protocol."""
    shortest: float = 5.0
    """Least seconds until a reading arrives."""
    longest: float = 15.0
    """Most seconds until a reading arrives."""
    missing: float = 0.01
    """Share of readings that never arrive."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans without readings, in seconds from the start of the run."""
    immediate: bool = False
    """Whether the end of a start causes a decision at once, and a request at zero replicas orders a replica
    within a second, as in a controller that watches replicas and gets reports of held requests.
    """
    idle_seconds: float = 0.0
    """Seconds between decisions while no request arrives or is in flight, and only time can change the last
    decision, as the setting `idle_seconds`; 0: at every interval of the policy.
    """


@dataclass(frozen=True, slots=True)
class DeliveredReadings:
    """The readings that arrive, in order; times are in seconds from the start of the run."""

    taken: list[float]
    """When the counters of each reading are read."""
    arrived: list[float]
    """When the policy gets each reading."""


def readings(delivery: Delivery, seconds: float, draws: np.random.Generator) -> DeliveredReadings:
    """Return the readings of a run of `seconds`; a late reading delays the readings after it.

    Args:
        delivery: delays and losses.
        seconds: length of the run.
        draws: source of the random delays and losses.
    """
    taken: NDArray[np.float64] = np.arange(delivery.every, seconds, delivery.every)
    arrived = np.maximum.accumulate(taken + draws.uniform(delivery.shortest, delivery.longest, len(taken)))
    arrives = draws.random(len(taken)) >= delivery.missing
    for start, end in delivery.outages:
        arrives &= (taken < start) | (taken >= end)
    return DeliveredReadings(taken[arrives].tolist(), arrived[arrives].tolist())
