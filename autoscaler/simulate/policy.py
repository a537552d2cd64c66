"""The interface of simulated scaling policies. Pure."""

from typing import Protocol

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation

UTILISATION = "utilisation"
"""Gauge: the used share of the ready replicas' capacity since the last reading, 0 to 1."""
WAITING = "waiting"
"""Gauge: requests at the last reading that wait for a free slot of a ready replica."""


class Policy(Protocol):
    """A policy has no IO and no clock, and keeps its own state."""

    @property
    def interval(self) -> float:
        """Seconds between decisions."""

    def decide(self, observation: Observation) -> Decision:
        """Return the decision on the observations since the last call; called at each interval, except as
        `Delivery.immediate` and `Delivery.idle_seconds` say.
        """
