"""What reaches a policy of the load: readings at even times, which arrive late, in order, and not all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Signals:
    """How readings travel."""

    every: float = 5.0
    """Seconds between readings: the scrape interval of the protocol."""
    shortest: float = 5.0
    """Seconds that a reading needs to arrive, at least."""
    longest: float = 15.0
    """Seconds, at most."""
    missing: float = 0.01
    """Share of readings that never arrive."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans, in seconds from the start of the run, of which no reading arrives."""
    prompt: bool = False
    """Whether a start that ends has a decision at once, and a request at zero a first replica within a
    second: as a controller has them that watches its replicas, and whose activator tells of the request."""
    steady: float = 0.0
    """Seconds between decisions while no request comes or is there, and the last one was of a kind that only
    time changes: as a controller of many targets saves them; 0: as many as ever."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Those that arrive: when each was taken and when it is known, in seconds from the start of the run."""

    taken: list[float]
    known: list[float]


def readings(signals: Signals, seconds: float, draws: np.random.Generator) -> Readings:
    """Return the readings of a run; a late one holds up those behind it."""
    taken: NDArray[np.float64] = np.arange(signals.every, seconds, signals.every)
    known = np.maximum.accumulate(taken + draws.uniform(signals.shortest, signals.longest, len(taken)))
    arrive = draws.random(len(taken)) >= signals.missing
    for start, end in signals.outages:
        arrive &= (taken < start) | (taken >= end)
    return Readings(taken[arrive].tolist(), known[arrive].tolist())
