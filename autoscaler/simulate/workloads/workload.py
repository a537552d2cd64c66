"""A simulated service: load, replicas, objective, history, and the scored part. Pure."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.observation import Capacity
from autoscaler.simulate import oracle
from autoscaler.simulate.oracle import Oracle, Schedules
from autoscaler.simulate.plant import FluidPlant, Plant
from autoscaler.simulate.policy_inputs import LoadHistory, PolicyInputs
from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.routed_plant import RoutedPlant
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests

LEAD_SECONDS = 600
"""Unscored seconds at the start of a run, so that the initial state is not scored."""
SHORTEST_WAIT = 2.0
"""Least allowed wait in seconds; else the mean service time."""
HEADROOM = 3
"""Room for replicas over the highest need: enough that winding up shows."""
SPARE = 0.7
"""Share of the first replicas that the first minutes keep busy."""
STEP = 0.125
"""Resolution of a wake from zero in seconds, a power of two, so that its multiples are exact."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Times count in seconds from the start of the run, which follows the history."""

    name: str
    start: float
    """Unix seconds."""
    seconds: int
    load: Flow | Requests
    replica: Replica
    wait: float
    """Seconds of wait beyond which a request is a violation."""
    min_replicas: int = 1
    history: LoadHistory = field(default_factory=LoadHistory)
    lead: int = LEAD_SECONDS
    outages: tuple[tuple[float, float], ...] = ()
    """Spans without readings, in seconds of the run."""
    tags: frozenset[str] = frozenset()
    routed: bool = False
    """Whether requests wait at their replica, as behind Envoy, and not in a shared queue."""
    ending: float = 0.0
    """Seconds that a removed replica without requests costs, where `routed` is set."""

    @property
    def step(self) -> float:
        """Seconds to whose multiples the run rounds times up: whole seconds, finer for single requests."""
        return STEP if self.routed else 1.0

    def plant(self) -> Plant:
        """Return the replicas of one run."""
        if isinstance(self.load, Flow):
            return FluidPlant(self.load, self.replica)
        if self.routed:
            return RoutedPlant(self.load, self.replica, ending=self.ending)
        return QueuePlant(self.load, self.replica)

    def schedules(self, *, lean: bool) -> Schedules:
        """Return the schedules with perfect knowledge; `lean` ones of many requests take some seconds."""
        if isinstance(self.load, Flow):
            schedules = oracle.of_flow(self.load, self.replica, self.wait, lean=lean)
        else:
            schedules = oracle.of_requests(self.load, self.replica, self.wait, self.seconds, lean=lean)

        def bounded(schedules: tuple[Floats, ...]) -> tuple[Floats, ...]:
            return tuple(np.maximum(need, self.min_replicas) for need in schedules)

        return Schedules(bounded(schedules.plain), bounded(schedules.lean))

    def oracle(self, startup: float) -> Oracle:
        """Return the schedules with perfect knowledge, without lean ones."""
        return oracle.oracle_of(self.schedules(lean=False), startup)

    def limit(self) -> int:
        """Return the most replicas."""
        return HEADROOM * int(max(self.schedules(lean=False).plain[0].max(), 1))

    def policy_inputs(self, limit: int) -> PolicyInputs:
        """Return the inputs of a policy."""
        capacity = Capacity(self.replica.rate, float(self.replica.concurrency))
        return PolicyInputs(capacity, self.replica.service_seconds, self.min_replicas, limit, self.history)

    def first_replicas(self) -> int:
        """Return the replicas at the start of a run: the need of its first minutes, and some more."""
        flow = self.load.per_second(self.seconds)
        mean = float(flow.work[: max(self.lead, 60)].mean())
        return max(math.ceil(mean / self.replica.rate / SPARE), self.min_replicas)

    def pure_work(self) -> float:
        """Return the replica-seconds of the scored load at full use."""
        flow = self.load.per_second(self.seconds)
        return float(flow.work[self.lead :].sum()) / self.replica.rate

    def without_history(self) -> "Workload":
        """Return the workload of a controller that starts without stored state."""
        return replace(self, history=LoadHistory())


def history_of(flow: Flow, end: float, step: int = 60) -> LoadHistory:
    """Return the sums of each `step` seconds of a flow that ends at `end`, whole steps only."""
    steps = len(flow.arrivals) // step

    def summed(values: Floats) -> Floats:
        sums: Floats = values[len(values) - steps * step :].reshape(steps, step).sum(axis=1)
        return sums

    return LoadHistory(end, float(step), summed(flow.arrivals), summed(flow.work))
