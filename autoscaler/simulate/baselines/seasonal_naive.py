"""Seasonal-naive: sizes for yesterday's load, the highest until a start that is ordered now is ready."""

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.last_value import READING_DELAY, RateEstimate
from autoscaler.simulate.baselines.measures import Startups, within_bounds
from autoscaler.simulate.baselines.minutes import DAY_MINUTES, MINUTE, Minutes
from autoscaler.simulate.baselines.sizing import TICK, Sizing
from autoscaler.simulate.policy_inputs import PolicyInputs

DAYS = 2
"""Stored days: the previous and the current one."""


class SeasonalNaive:
    """A policy that repeats yesterday; before yesterday's load is known, it takes the last value."""

    interval = TICK

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._minutes = Minutes(inputs.history, DAYS)
        self._rate_estimate = RateEstimate()
        self._sizing = Sizing(inputs)
        self._startups = Startups()

    def decide(self, observation: Observation) -> Decision:
        """Return the replicas for yesterday's rate; without a new reading only the time of day changes."""
        self._startups.see(observation.replicas)
        if observation.load is not None:
            self._minutes.see(observation.load)
            self._rate_estimate.see(observation.load)
        yesterday = observation.now - DAY_MINUTES * MINUTE
        rate = self._minutes.most(yesterday, yesterday + self._startups.seconds + READING_DELAY)
        reason = "Yesterday"
        if rate is None:
            rate, reason = self._rate_estimate.value, "LastValue"
        return within_bounds(self._inputs, self._sizing.replicas(observation, rate), reason, work=rate)
