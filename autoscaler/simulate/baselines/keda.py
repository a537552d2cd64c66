"""KEDA: activation between zero and one replica by polling, and a HorizontalPodAutoscaler from there on.

Source: kedacore/keda@8b4f083 `pkg/scaling/executor/scale_scaledobjects.go`,
`apis/keda/v1alpha1/withtriggers_types.go`. The trigger is the number of requests in the service, with as
many per replica as the other baselines aim at.
"""

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.hpa import SYNC, Behaviour, of_total
from autoscaler.simulate.baselines.measures import TARGET, requests_in_service, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

POLLING = 30.0
"""Seconds between polls of the trigger, which only decide between zero replicas and at least one."""
COOLDOWN = 300.0
"""Seconds without a request before zero."""


class Keda:
    """KEDA's scaler, which is also the external metric of the HPA. Without a reading the scaler has an error,
    and nothing changes.
    """

    interval = SYNC

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._target = max(TARGET * inputs.capacity.concurrency, 0.01)
        self._behaviour = Behaviour()
        self._poll_at = self._active_at = float("-inf")
        """Unix seconds of the next poll, and of the last poll with a request; before any, of the first."""

    def decide(self, observation: Observation) -> Decision:
        """Return the change of a poll to or from zero, else the HPA's count, or zero at zero replicas."""
        now, load, current = observation.now, observation.load, observation.replicas.desired
        if load is None:
            return within_bounds(self._inputs, current, "ScalerError")
        total = requests_in_service(load)
        if now >= self._poll_at:
            self._poll_at = now + POLLING
            decision = self._poll(now, total, current)
            if decision is not None:
                return decision
        if current == 0:
            return within_bounds(self._inputs, 0, "ScalerNotActive")
        count = self._behaviour.applied(now, current, of_total(total, self._target, current))
        return within_bounds(self._inputs, count, "ScalerActive", least=1)

    def _poll(self, now: float, total: float, current: int) -> Decision | None:
        """Return the decision to or from zero; None: no such change."""
        if self._active_at == float("-inf"):
            self._active_at = now
        if total > 0:
            self._active_at = now
            return within_bounds(self._inputs, 1, "Activated", least=1) if current == 0 else None
        if self._inputs.min_replicas == 0 and current > 0 and now - self._active_at > COOLDOWN:
            return within_bounds(self._inputs, 0, "Deactivated")
        return None
