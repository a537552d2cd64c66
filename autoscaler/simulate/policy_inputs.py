"""The inputs of every simulated policy: capacity, bounds, the load of the days before. Pure."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoscaler.observation import Capacity


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The load before the first decision, in even steps without gaps; nothing when `arrivals` is empty."""

    end: float = 0.0
    """Unix seconds: the end of the last step."""
    step: float = 60.0
    """Seconds of a step: the resolution at which metrics servers keep weeks."""
    arrivals: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Requests of each step, the oldest first."""
    work: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Work of each step, in the unit of `Capacity.rate`."""

    @property
    def start(self) -> float:
        """Unix seconds: the start of the first step."""
        return self.end - self.step * len(self.arrivals)


@dataclass(frozen=True, slots=True)
class PolicyInputs:
    """Equal for every policy of a run. The duration of a start is not among them; policies learn it."""

    capacity: Capacity
    """Capacity of one replica, as in a CapacityProfile."""
    service_seconds: float
    """Mean service time of a request that does not wait, in seconds."""
    min_replicas: int
    max_replicas: int
    history: LoadHistory = field(default_factory=LoadHistory)
