"""The HorizontalPodAutoscaler (`autoscaling/v2`) of Kubernetes on utilisation of a resource, all defaults.

Sources: kubernetes/kubernetes `pkg/controller/podautoscaler/replica_calculator.go` (GetResourceReplicas,
0006726) and `horizontal.go` (stabilisation and rules); defaults of `pkg/apis/autoscaling/v2/defaults.go`.
"""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.measures import TARGET, Highest, utilisation, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

SYNC = 15.0
"""Seconds between reconciliations: the controller manager's default."""
TOLERANCE = 0.1
"""Deviation of the ratio of a metric to its target within which nothing changes."""
STABILISATION = 300.0
"""Seconds of the stabilization window: scaling down takes its highest recommendation."""
UP_PODS = 4
"""Replicas that may be added in a period of 15 s; the current count if that is more."""


class Behaviour:
    """The default `behavior`: up by max(100 %, 4 replicas) per 15 s; down to the highest of 300 s.

    The period of the rule for scaling up is the time between reconciliations, so that no earlier scaling
    event lies in the period.
    """

    def __init__(self, stabilisation: float = STABILISATION) -> None:
        self._down = Highest(stabilisation)
        self._begun = False

    def applied(self, now: float, current: int, recommended: int) -> int:
        """Return the recommended count within the rules, at `now` in seconds.

        The first call records the current count as a recommendation.
        """
        if not self._begun:
            self._down.of(now, current)
            self._begun = True
        highest = int(self._down.of(now, recommended))
        if recommended > current:
            return min(recommended, max(2 * current, current + UP_PODS))
        return min(current, highest)


def of_utilisation(ratio: float, current: int, ready: int, starting: int) -> int:
    """Return the recommended count for a utilisation.

    On the way up, starting replicas count as idle; the count does not change if the ratio is then below 1.

    Args:
        ratio: of the mean utilisation of the ready replicas to its target.
        current: desired replicas.
        ready: ready replicas.
        starting: starting replicas.
    """
    counted, counted_ratio = ready, ratio
    if starting and ratio > 1:
        counted = ready + starting
        counted_ratio = ratio * ready / counted
        if counted_ratio < 1:
            return current
    if abs(1 - counted_ratio) <= TOLERANCE:
        return current
    count = math.ceil(counted_ratio * counted - 1e-9)
    # The counted replicas may be more or fewer than `current`: the count never moves against the ratio.
    is_turned = (counted_ratio < 1 and count > current) or (counted_ratio > 1 and count < current)
    return current if is_turned else count


def of_total(total: float, target: float, current: int) -> int:
    """Return the recommended count for an external metric: its total over the target of one replica."""
    if abs(1 - total / (target * current)) <= TOLERANCE:
        return current
    return math.ceil(total / target)


class Hpa:
    """At least one replica: zero needs a metric that exists without pods, and utilisation does not."""

    interval = SYNC

    def __init__(self, inputs: PolicyInputs, target: float = TARGET) -> None:
        self._inputs = inputs
        self._target = target
        self._behaviour = Behaviour()

    def decide(self, observation: Observation) -> Decision:
        """Return the controller's count; without metrics it changes nothing."""
        replicas = observation.replicas
        current = replicas.desired
        usage = utilisation(observation, self._inputs)
        if usage is None or replicas.ready == 0 or current == 0:
            return within_bounds(self._inputs, current, "NoMetrics", least=1)
        recommended = of_utilisation(usage / self._target, current, replicas.ready, len(replicas.starting))
        count = self._behaviour.applied(observation.now, current, recommended)
        return within_bounds(self._inputs, count, _reason(count, recommended, current), least=1)


def _reason(count: int, recommended: int, current: int) -> str:
    if count < recommended:
        return "ScaleUpLimit"
    if count > recommended:
        return "ScaleDownStabilized"
    return "ReadyForNewScale" if count == current else "SucceededRescale"
