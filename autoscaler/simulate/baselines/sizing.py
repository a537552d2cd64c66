"""From a forecast rate of work to replicas: utilisation, backlog, and a window on the way down."""

import math

from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Highest, requests_in_service
from autoscaler.simulate.policy_inputs import PolicyInputs

UTILISATION = 0.85
"""Share of capacity that the forecast rate may take."""
CATCH_UP = 60.0
"""Seconds in which a backlog is to be gone."""
DOWN_WINDOW = 180.0
"""Seconds of which the highest need is kept."""
KEEP = 600.0
"""Seconds that the last replica stays without requests, where zero is allowed."""
LEAST = 1e-3
"""Share of a replica up to which a need counts as none, as means that fade never end."""
TICK = 5.0
"""Seconds between decisions: those between readings."""


class Sizing:
    """The need follows the rate; a backlog adds as much again at most, so that it does not wind up."""

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._highest = Highest(DOWN_WINDOW)
        self._busy_at = float("-inf")

    def replicas(self, observation: Observation, rate: float) -> int:
        """Return the replicas for work per second, to be called with each reading."""
        now, load = observation.now, observation.load
        if self._busy_at == float("-inf") or (
            load is not None and (load.arrivals or requests_in_service(load) > 0)
        ):
            self._busy_at = now
        need = rate / (UTILISATION * self._inputs.capacity.rate)
        extra = self._backlog(load, observation.replicas.ready) if load is not None else 0.0
        count = math.ceil(need + min(extra, max(need, 1.0)) - LEAST)
        replicas = int(self._highest.of(now, count))
        return max(replicas, 1) if now - self._busy_at < KEEP else replicas

    def _backlog(self, load: Load, ready: int) -> float:
        """Return the replicas that catch up with the backlog within its time."""
        slots = self._inputs.capacity.concurrency
        waits = max(load.in_flight - ready * slots, 0.0) + load.held
        return waits * self._inputs.service_seconds / (slots * CATCH_UP)
