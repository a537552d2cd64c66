"""AIBrix's APA: a ratio with a tolerance and a limit of each change, and a cooldown on the way down.

Source: vllm-project/aibrix@e3e10f9 `pkg/controller/podautoscaler/algorithm/apa.go`, defaults of
`context/context.go`, windows of `metrics/client.go`. Its documentation calls the cooldown a stabilization
window as of an HPA, and here it is one. At that commit `stabilizeRecommendation` takes the lowest
recommendation of the window on the way down, which delays no removal.
"""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.measures import (
    TARGET,
    Highest,
    ReadingWindow,
    requests_in_service,
    within_bounds,
)
from autoscaler.simulate.policy_inputs import PolicyInputs

RESYNC = 10.0
"""Seconds between reconciliations."""
WINDOW = 180.0
"""Seconds of which the metric is the mean."""
TOLERANCE = 0.1
"""Deviation of the ratio of the metric to its target within which nothing changes, up and down alike."""
MOST_TIMES = 2.0
"""Largest factor by which a decision multiplies or divides the replicas."""
COOLDOWN = 300.0
"""Seconds of the stabilization window: scaling down takes its highest recommendation."""


def recommended(current: int, ratio: float) -> int:
    """Return the replicas for the ratio of the requests per ready replica to their target."""
    count = math.ceil(current * ratio - 1e-9)
    if ratio > 1 + TOLERANCE:
        return min(count, math.ceil(MOST_TIMES * current))
    if ratio < 1 - TOLERANCE:
        return max(count, math.floor(current / MOST_TIMES))
    return current


class Apa:
    """Requests per ready replica; the ratio applies to all replicas, ready or not. At least one replica."""

    interval = RESYNC

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._target = max(TARGET * inputs.capacity.concurrency, 0.01)
        self._usage = ReadingWindow(WINDOW)
        self._down = Highest(COOLDOWN)

    def decide(self, observation: Observation) -> Decision:
        """Return the recommendation; without a ready replica there is no metric and no change."""
        load, replicas = observation.load, observation.replicas
        current = replicas.desired
        if load is not None and replicas.ready:
            self._usage.add(load.end, load.seconds, requests_in_service(load) / replicas.ready)
        if load is None or replicas.ready == 0 or current == 0:
            return within_bounds(self._inputs, current, "NoMetrics", least=1)
        count = recommended(current, self._usage.mean() / self._target)
        highest = int(self._down.of(observation.now, count))
        if count > current:
            return within_bounds(self._inputs, count, "ScaleUp", least=1)
        return within_bounds(
            self._inputs, min(current, highest), "ScaleDown" if highest < current else "Kept", least=1
        )
