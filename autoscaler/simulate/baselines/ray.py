"""Ray Serve's policy: requests over a target per replica, once the desired change has lasted for a delay.

Source: ray-project/ray `python/ray/serve/autoscaling_policy.py` (00590c4), defaults of
`AutoscalingConfig`. Its target of 2 requests belongs to replicas that take 5; here it is a share of the
concurrency, as for the others.
"""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.measures import TARGET, ReadingWindow, requests_in_service, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

TICK = 5.0
"""Seconds between decisions; Ray decides each 0.1 s, but between two readings the load is the same."""
LOOK_BACK = 30.0
"""Seconds over which the mean of the requests is taken."""
UP_DELAY = 30.0
"""Seconds for which more replicas must be needed before they are ordered."""
DOWN_DELAY = 600.0
"""Seconds for which fewer replicas must be needed before one is removed; the last one too, since
downscale_to_zero_delay_s has no default."""


class RayServe:
    """At zero replicas the first request starts one at once; zero is only reached from one."""

    interval = TICK

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._target = max(TARGET * inputs.capacity.concurrency, 0.01)
        self._ongoing = ReadingWindow(LOOK_BACK)
        self._direction = 0
        """Direction of the change that is needed: 1 up, -1 down, 0 none."""
        self._since = 0.0
        """Unix seconds at which the delay began: the direction changed, or the last change was ordered."""

    def decide(self, observation: Observation) -> Decision:
        """Return the recommended count after bounds and delays."""
        load, replicas, now = observation.load, observation.replicas, observation.now
        if load is not None:
            self._ongoing.add(load.end, load.seconds, requests_in_service(load))
        current = replicas.desired
        if replicas.ready == 0:
            count = 1 if load is not None and requests_in_service(load) > 0 else 0
            return within_bounds(self._inputs, max(current, count), "ColdStart")
        recommended = math.ceil(self._ongoing.mean() / self._target)
        recommended = min(max(recommended, self._inputs.min_replicas), self._inputs.max_replicas)
        return within_bounds(self._inputs, *self._delayed(now, recommended, current))

    def _delayed(self, now: float, recommended: int, current: int) -> tuple[int, str]:
        """Return the count and its reason: `recommended` once the delay has passed, until then `current`."""
        direction = (recommended > current) - (recommended < current)
        if direction != self._direction:
            self._direction, self._since = direction, now
        if direction == 0:
            return current, "Kept"
        if now - self._since < (UP_DELAY if direction > 0 else DOWN_DELAY):
            return current, "UpscaleDelay" if direction > 0 else "DownscaleDelay"
        self._since = now
        if direction > 0:
            return recommended, "Upscale"
        return (recommended if current == 1 else max(recommended, 1)), "Downscale"
