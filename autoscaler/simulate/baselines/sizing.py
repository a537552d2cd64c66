"""Replicas for a forecast rate of work: at a utilisation, with a backlog, and stabilized on the way down."""

import math

from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Highest, requests_in_service
from autoscaler.simulate.policy_inputs import PolicyInputs

UTILISATION = 0.85
"""Share of capacity that the forecast rate may take."""
CATCH_UP = 60.0
"""Seconds in which further replicas serve the backlog."""
DOWN_WINDOW = 180.0
"""Seconds of the stabilization window: the count is the highest need of the window."""
KEEP = 600.0
"""Seconds that the last replica stays without requests, where zero is allowed."""
LEAST = 1e-3
"""Share of a replica up to which a need counts as none: an exponential mean never reaches 0."""
TICK = 5.0
"""Seconds between decisions: the time between two readings."""


class Sizing:
    """Computes the count. The replicas for the backlog are at most as many as those for the rate, but may
    be one: a backlog that builds up while replicas start orders no replicas without limit.
    """

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._highest = Highest(DOWN_WINDOW)
        self._busy_at = float("-inf")
        """Unix seconds of the last decision that saw a request; before any request, of the first decision."""

    def replicas(self, observation: Observation, rate: float) -> int:
        """Return the replicas for `rate`, the forecast work per second; called at each decision."""
        now, load = observation.now, observation.load
        if self._busy_at == float("-inf") or (
            load is not None and (load.arrivals or requests_in_service(load) > 0)
        ):
            self._busy_at = now
        for_rate = rate / (UTILISATION * self._inputs.capacity.rate)
        for_backlog = self._backlog(load, observation.replicas.ready) if load is not None else 0.0
        count = math.ceil(for_rate + min(for_backlog, max(for_rate, 1.0)) - LEAST)
        replicas = int(self._highest.of(now, count))
        return max(replicas, 1) if now - self._busy_at < KEEP else replicas

    def _backlog(self, load: Load, ready: int) -> float:
        """Return the replicas that serve the waiting requests within `CATCH_UP`."""
        slots = self._inputs.capacity.concurrency
        waiting = max(load.in_flight - ready * slots, 0.0) + load.held
        return waiting * self._inputs.service_seconds / (slots * CATCH_UP)
