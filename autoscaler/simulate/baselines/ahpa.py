"""Like Alibaba's AHPA: the higher of a reactive HPA and a daily profile at a high quantile, a start-up
time early.

Sources: arXiv 2303.03640 and the product's documentation: `quantile: 95`, `scaleUpForward: 180`, at least
seven days of history, reactive alone where no period shows. RobustPeriod and RobustSTL have no public
code; a quantile per five minutes of the day over seven days stands for them, and the correlation of days
for detecting a period.
"""

import math

from autoscaler.decision import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.baselines.hpa import SYNC, Hpa
from autoscaler.simulate.baselines.measures import TARGET, Startups, quantile, within_bounds
from autoscaler.simulate.baselines.minutes import DAY_MINUTES, MINUTE, Minutes
from autoscaler.simulate.policy_inputs import PolicyInputs

DAYS = 7
"""Days of history that it asks for, and that it uses."""
QUANTILE = 0.95
FORWARD = 180.0
"""Seconds of scaleUpForward until a start-up time is known."""
SLOT = 5
"""Minutes of the day that share a quantile."""
PERIODIC = 0.3
"""Correlation of the load with itself a day before, from which on a day counts as a period. Traces whose days
look alike have 0.3 and more, others 0.15 and less."""


class Ahpa:
    """As reactive as an HPA; as the HPA it keeps a replica."""

    interval = SYNC

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._reactive = Hpa(inputs)
        self._startups = Startups(FORWARD)
        self._minutes = Minutes(inputs.history, DAYS)
        self._profile: list[float] = []
        self._checked = self._filled = 0

    def decide(self, observation: Observation) -> Decision:
        """Return the higher of both."""
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
        """Return the highest rate of the profile until replicas that are ordered now are ready."""
        if not self._profile:
            return 0.0
        first = int(now // MINUTE) // SLOT
        last = int((now + self._startups.seconds + SYNC) // MINUTE) // SLOT
        slots = len(self._profile)
        return max(self._profile[slot % slots] for slot in range(first, last + 1))

    def _learn(self) -> None:
        """Compare the days once a day; add ended minutes to the profile every five minutes."""
        end = self._minutes.open
        if self._minutes.known < DAYS * DAY_MINUTES:
            return
        slot = end // SLOT
        day = end // DAY_MINUTES
        if day != self._checked:
            self._checked = day
            self._profile = self._built(slot) if self._daily() >= PERIODIC else []
        elif slot != self._filled and self._profile:
            self._profile[(slot - 1) % len(self._profile)] = self._of_slot(slot - 1)
        self._filled = slot

    def _built(self, end: int) -> list[float]:
        """Return the profile by slot of the day, of the slots before `end`."""
        slots = DAY_MINUTES // SLOT
        start = end - slots
        return [self._of_slot(start + (position - start) % slots) for position in range(slots)]

    def _of_slot(self, slot: int) -> float:
        """Return the quantile of the minutes of a slot, in it and at the same time of the days before."""
        rates: list[float] = []
        for day in range(DAYS):
            rates += self._minutes.span(slot * SLOT - day * DAY_MINUTES, SLOT)
        return quantile(rates, QUANTILE)

    def _daily(self) -> float:
        """Return the correlation of the load, in means of a slot, with that of the day before."""
        minutes = self._minutes.span(self._minutes.open - DAYS * DAY_MINUTES, DAYS * DAY_MINUTES)
        means = [sum(minutes[at : at + SLOT]) / SLOT for at in range(0, len(minutes), SLOT)]
        middle = sum(means) / len(means)
        apart = [mean - middle for mean in means]
        total = sum(value * value for value in apart)
        both = sum(before * after for before, after in zip(apart, apart[DAY_MINUTES // SLOT :], strict=False))
        return both / total * DAYS / (DAYS - 1) if total > 0 else 0.0
