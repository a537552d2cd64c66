"""Feed-forward of the arrival rate: the last value, smoothed, with its noise, and its trend over a start."""

import math

from autoscaler.decision import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Startups, rate, within_bounds
from autoscaler.simulate.baselines.sizing import TICK, Sizing
from autoscaler.simulate.policy_inputs import PolicyInputs

FAST = 30.0
"""Seconds: time constant of the mean that counts as the last value."""
SLOW = 120.0
"""Seconds: time constant of the mean that the trend is taken against."""
DEVIATIONS = 1.0
"""Standard deviations of the readings above their mean."""
DELAY = 15.0
"""Seconds that readings take to arrive, at most; the trend is followed for as long and a start more."""


class Level:
    """Two exponential means of a rate: level, variation and trend."""

    def __init__(self) -> None:
        self.value = 0.0
        """Work per second."""
        self._slow = 0.0
        self._variance = 0.0
        self._begun = False

    def see(self, load: Load) -> None:
        """Take a reading."""
        now = rate(load)
        if not self._begun:
            self.value = self._slow = now
            self._begun = True
            return
        change = 1 - math.exp(-load.seconds / FAST)
        error = now - self.value
        self.value += change * error
        self._variance = (1 - change) * (self._variance + change * error * error)
        self._slow += (1 - math.exp(-load.seconds / SLOW)) * (now - self._slow)

    def ahead(self, seconds: float) -> float:
        """Return the rate to expect at most within `seconds`: with its noise, and with a trend that rises.

        On a ramp a mean lags by its time constant: the difference of two is the slope times that of these.
        """
        slope = (self.value - self._slow) / (SLOW - FAST)
        return self.value + DEVIATIONS * math.sqrt(self._variance) + max(slope, 0.0) * seconds


class LastValue:
    """A policy without a season; how long starts take it learns."""

    interval = TICK

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._level = Level()
        self._sizing = Sizing(inputs)
        self._startups = Startups()

    def decide(self, observation: Observation) -> Decision:
        """Return the replicas for the rate ahead; without a new reading nothing changes."""
        self._startups.see(observation.replicas)
        if observation.load is None:
            return within_bounds(self._inputs, observation.replicas.desired, "NoData")
        self._level.see(observation.load)
        ahead = self._level.ahead(self._startups.seconds + DELAY)
        count = self._sizing.replicas(observation, ahead)
        return within_bounds(self._inputs, count, "Rate", work=self._level.value)
