"""The delivery of readings to a policy: at even times, late, in order, and some never. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delays and losses of readings."""

    every: float = 5.0
    """Seconds between readings: the scrape interval of the protocol."""
    shortest: float = 5.0
    """Least seconds until a reading arrives."""
    longest: float = 15.0
    """Most seconds until a reading arrives."""
    missing: float = 0.01
    """Share of readings that never arrive."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans without readings, in seconds from the start of the run."""
    prompt: bool = False
    """Whether the end of a start causes a decision at once, and a request at zero a first replica within a
    second, as in a controller that watches replicas and gets reports of held requests.
    """
    steady: float = 0.0
    """Seconds between decisions while no request arrives or is in flight, and only time can change the last
    decision; 0: decisions at every reading.
    """


@dataclass(frozen=True, slots=True)
class Readings:
    """Arriving readings: the times of taking and of arrival, in seconds from the start of the run."""

    taken: list[float]
    known: list[float]


def readings(delivery: Delivery, seconds: float, draws: np.random.Generator) -> Readings:
    """Return the readings of a run; a late reading delays those behind it."""
    taken: NDArray[np.float64] = np.arange(delivery.every, seconds, delivery.every)
    known = np.maximum.accumulate(taken + draws.uniform(delivery.shortest, delivery.longest, len(taken)))
    arrive = draws.random(len(taken)) >= delivery.missing
    for start, end in delivery.outages:
        arrive &= (taken < start) | (taken >= end)
    return Readings(taken[arrive].tolist(), known[arrive].tolist())
