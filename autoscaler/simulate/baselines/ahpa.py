"""A policy like Alibaba's AHPA: the higher count of a reactive HPA and of a daily profile, which is a high
quantile of the load at a time of the day and is read a start-up time ahead.

Sources: arXiv 2303.03640 and the product's documentation: `quantile: 95`, `scaleUpForward: 180`, at least
seven days of history, and only the reactive part where the load has no period. RobustPeriod and RobustSTL
have no public code. In their place, the correlation of the load with that of the day before detects the
period, and the profile is a quantile over seven days of each five minutes of the day.
"""

import math

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.hpa import SYNC, Hpa
from autoscaler.simulate.baselines.measures import TARGET, Startups, within_bounds
from autoscaler.simulate.baselines.minutes import DAY_MINUTES, MINUTE, Minutes
from autoscaler.simulate.policy_inputs import PolicyInputs
from serving.quantile import nearest_rank

DAYS = 7
"""Days of history without which there is no profile, and that the profile is made from."""
QUANTILE = 0.95
"""The profile's quantile of the load of a slot."""
FORWARD = 180.0
"""Seconds of scaleUpForward until a start-up time is known."""
SLOT = 5
"""Minutes of a slot; the profile has one rate for each slot of the day."""
PERIODIC = 0.3
"""Correlation of the load with itself a day before, from which on a day counts as a period. Traces whose days
look alike have 0.3 and more, others 0.15 and less."""


class Ahpa:
    """The higher count of an HPA and of the profile; at least one replica, as of the HPA."""

    interval = SYNC

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._reactive = Hpa(inputs)
        self._startups = Startups(FORWARD)
        self._minutes = Minutes(inputs.history, DAYS)
        self._profile: list[float] = []
        """Work per second by slot of the day; empty without a period."""
        self._profile_day = self._profile_slot = 0
        """The day and the slot, since 1970, up to which the profile is updated."""

    def decide(self, observation: Observation) -> Decision:
        """Return the decision with the higher count."""
        self._startups.see(observation.replicas)
        if observation.load is not None:
            self._minutes.see(observation.load)
            self._learn()
        reactive = self._reactive.decide(observation)
        ahead = self._ahead(observation.now)
        count = math.ceil(ahead / (TARGET * self._inputs.capacity.rate) - 1e-9)
        if count <= reactive.replicas:
            return reactive
        return within_bounds(self._inputs, count, "Proactive", least=1, work=ahead)

    def _ahead(self, now: float) -> float:
        """Return the highest work per second of the profile until replicas that are ordered now are ready."""
        if not self._profile:
            return 0.0
        first = int(now // MINUTE) // SLOT
        last = int((now + self._startups.seconds + SYNC) // MINUTE) // SLOT
        slots = len(self._profile)
        return max(self._profile[slot % slots] for slot in range(first, last + 1))

    def _learn(self) -> None:
        """Build the profile once a day if the load has a period; update its slot when a slot has ended."""
        end = self._minutes.open
        if self._minutes.known < DAYS * DAY_MINUTES:
            return
        slot = end // SLOT
        day = end // DAY_MINUTES
        if day != self._profile_day:
            self._profile_day = day
            self._profile = self._profile_before(slot) if self._correlation_of_days() >= PERIODIC else []
        elif slot != self._profile_slot and self._profile:
            self._profile[(slot - 1) % len(self._profile)] = self._of_slot(slot - 1)
        self._profile_slot = slot

    def _profile_before(self, end: int) -> list[float]:
        """Return the profile made from the load before the slot `end`."""
        slots = DAY_MINUTES // SLOT
        start = end - slots
        return [self._of_slot(start + (position - start) % slots) for position in range(slots)]

    def _of_slot(self, slot: int) -> float:
        """Return the quantile over the minutes of a slot and of the same slot of the days before."""
        rates: list[float] = []
        for day in range(DAYS):
            rates += self._minutes.span(slot * SLOT - day * DAY_MINUTES, SLOT)
        return nearest_rank(rates, QUANTILE)

    def _correlation_of_days(self) -> float:
        """Return the autocorrelation of the load, in means of slots, at a lag of one day."""
        minutes = self._minutes.span(self._minutes.open - DAYS * DAY_MINUTES, DAYS * DAY_MINUTES)
        means = [sum(minutes[at : at + SLOT]) / SLOT for at in range(0, len(minutes), SLOT)]
        mean = sum(means) / len(means)
        deviations = [value - mean for value in means]
        squares = sum(value * value for value in deviations)
        a_day_later = deviations[DAY_MINUTES // SLOT :]
        products = sum(before * after for before, after in zip(deviations, a_day_later, strict=False))
        # The products are of one day less than the squares.
        return products / squares * DAYS / (DAYS - 1) if squares > 0 else 0.0
