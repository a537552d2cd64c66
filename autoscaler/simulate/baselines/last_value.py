"""A baseline that sizes for the arrival rate at the end of a start: the smoothed last value, one standard
deviation, and a rising trend.
"""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Startups, rate, within_bounds
from autoscaler.simulate.baselines.sizing import TICK, Sizing
from autoscaler.simulate.policy_inputs import PolicyInputs

FAST_SECONDS = 30.0
"""Time constant of the exponential mean that counts as the last value."""
SLOW_SECONDS = 120.0
"""Time constant of the exponential mean to which the trend compares the last value."""
DEVIATIONS = 1.0
"""Standard deviations of the readings that the expected rate adds to the last value."""
READING_DELAY = 15.0
"""Longest delay of a reading, in seconds: the trend is extrapolated over this delay and a start."""


class RateEstimate:
    """The last value, the variance and the trend of a rate, by two exponential means."""

    def __init__(self) -> None:
        self.value = 0.0
        """The last value: work per second, in the unit of `Capacity.rate`."""
        self._slow = 0.0
        self._variance = 0.0
        self._begun = False

    def see(self, load: Load) -> None:
        """Update the means and the exponentially weighted variance by a reading."""
        now = rate(load)
        if not self._begun:
            self.value = self._slow = now
            self._begun = True
            return
        change = 1 - math.exp(-load.seconds / FAST_SECONDS)
        error = now - self.value
        self.value += change * error
        self._variance = (1 - change) * (self._variance + change * error * error)
        self._slow += (1 - math.exp(-load.seconds / SLOW_SECONDS)) * (now - self._slow)

    def ahead(self, seconds: float) -> float:
        """Return the highest rate to expect within `seconds`; a falling trend does not lower it.

        On a ramp each mean lags by the slope times its time constant, so the difference of the means is the
        slope times the difference of the time constants.
        """
        slope = (self.value - self._slow) / (SLOW_SECONDS - FAST_SECONDS)
        return self.value + DEVIATIONS * math.sqrt(self._variance) + max(slope, 0.0) * seconds


class LastValue:
    """A policy without a season; it learns the duration of starts."""

    interval = TICK

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._rate_estimate = RateEstimate()
        self._sizing = Sizing(inputs)
        self._startups = Startups()

    def decide(self, observation: Observation) -> Decision:
        """Return the replicas for the highest expected rate; without a new reading, the present count."""
        self._startups.see(observation.replicas)
        if observation.load is None:
            return within_bounds(self._inputs, observation.replicas.desired, "NoData")
        self._rate_estimate.see(observation.load)
        ahead = self._rate_estimate.ahead(self._startups.seconds + READING_DELAY)
        count = self._sizing.replicas(observation, ahead)
        return within_bounds(self._inputs, count, "Rate", work=self._rate_estimate.value)
