"""A fixed number of replicas, sized for the peak of the history, as without an autoscaler."""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.measures import TARGET, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs


class Static:
    """Replicas for the busiest step of the history at a use of `TARGET`; without a history `max_replicas`."""

    interval = 300.0
    """Seconds between decisions; long, as the count never changes."""

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._replicas = inputs.max_replicas
        if len(inputs.history.work):
            busiest = float(inputs.history.work.max()) / inputs.history.step
            self._replicas = max(math.ceil(busiest / (TARGET * inputs.capacity.rate)), 1)

    def decide(self, observation: Observation) -> Decision:  # noqa: ARG002 - a policy's signature
        """Return the fixed count."""
        return within_bounds(self._inputs, self._replicas, "Static")
