"""Observations and inputs in few words, for tests of policies."""

import numpy as np

from autoscaler.decision_values import Decision
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.simulate.policy import UTILISATION, Policy
from autoscaler.simulate.policy_inputs import LoadHistory, PolicyInputs

START = 1_700_000_100.0
"""Unix seconds: the start of a minute, and of five."""


def inputs(
    least: int = 0,
    most: int = 1000,
    rate: float = 10.0,
    concurrency: float = 10.0,
    history: LoadHistory | None = None,
) -> PolicyInputs:
    """Return inputs of replicas whose requests take a second."""
    return PolicyInputs(
        Capacity(rate, concurrency), concurrency / rate, least, most, history or LoadHistory()
    )


def history(work: list[float], end: float = START, step: float = 60.0) -> LoadHistory:
    values = np.array(work)
    return LoadHistory(end, step, values, values)


class BaselineService:
    """A simulated service, stepped by a test: replicas follow decisions, and the test ends starts."""

    def __init__(self, policy: Policy, ready: int = 0) -> None:
        self.policy = policy
        self.now = START
        self.ready = self.desired = ready
        self._started: list[float] = []

    @property
    def starting(self) -> int:
        return max(self.desired - self.ready, 0)

    def start(self, took: float = 60.0) -> None:
        """Make starting replicas ready."""
        self._started += [took] * self.starting
        self.ready = self.desired

    def tick(
        self,
        present: float = 0.0,
        *,
        rate: float | None = None,
        usage: float | None = None,
        read: bool = True,
    ) -> Decision:
        """Pass an interval with this many requests in the service, and apply the decision."""
        seconds = self.policy.interval
        self.now += seconds
        work = (present if rate is None else rate) * seconds
        at = (present, 0.0) if self.ready else (0.0, present)
        load = Load(self.now - seconds, self.now, work, work, work, *at) if read else None
        gauges = {} if usage is None else {UTILISATION: usage}
        replicas = Replicas(self.desired, self.ready, (self.now,) * self.starting, tuple(self._started))
        self._started = []
        decision = self.policy.decide(Observation(self.now, replicas, load, gauges))
        self.desired = decision.replicas
        self.ready = min(self.ready, self.desired)
        return decision

    def ticks(self, seconds: float, present: float = 0.0, **given: float) -> list[int]:
        """Return the decided replicas over a time; all start at once."""
        counts = []
        for _ in range(round(seconds / self.policy.interval)):
            counts.append(self.tick(present, **given).replicas)
            self.start()
        return counts
