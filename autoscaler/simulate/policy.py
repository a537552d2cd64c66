"""What the simulator asks of a scaling policy, ours and every other."""

from typing import Protocol

from autoscaler.decision import Decision
from autoscaler.observation import Observation

UTILISATION = "utilisation"
"""Gauge: the share of the ready replicas' capacity that was used since the last reading, 0 to 1."""
WAITING = "waiting"
"""Gauge: requests at the last reading that wait for a free slot of a ready replica."""


class Policy(Protocol):
    """A policy has no IO and no clock; what it remembers, it keeps itself."""

    @property
    def interval(self) -> float:
        """Seconds between decisions."""

    def decide(self, observation: Observation) -> Decision:
        """Return the replicas to have; called once per interval, with the news since the last call."""
