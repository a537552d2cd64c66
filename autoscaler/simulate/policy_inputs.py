"""What every simulated policy is given before it starts: capacity, bounds, the load of the days before."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoscaler.observation import Capacity


@dataclass(frozen=True, slots=True)
class History:
    """The load before the first decision, in even steps without gaps; nothing when `arrivals` is empty."""

    end: float = 0.0
    """Unix seconds: the end of the last step."""
    step: float = 60.0
    """Seconds: how densely a metrics server keeps weeks."""
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
    """The same for every policy of a run. How long a start takes is not among them: it is to be learned."""

    capacity: Capacity
    """Of one replica, as a CapacityProfile says it."""
    service_seconds: float
    """Mean seconds that a request is served when it does not wait."""
    min_replicas: int
    max_replicas: int
    history: History = field(default_factory=History)
