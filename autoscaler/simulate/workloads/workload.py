"""A simulated service with the load of one run: load, replica, objective and history. Pure."""

import math
from dataclasses import dataclass, field

import numpy as np

from autoscaler.observation import Capacity
from autoscaler.simulate import oracle
from autoscaler.simulate.oracle import Oracle, Schedules
from autoscaler.simulate.plant import FluidPlant, Plant
from autoscaler.simulate.policy_inputs import LoadHistory, PolicyInputs
from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.routed_plant import RoutedPlant
from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Flow, Replica, Requests

LEAD_SECONDS = 600
"""Unscored seconds at the start of a run, so that the initial state is not scored."""
SHORTEST_WAIT = 2.0
"""Least `Workload.wait` in seconds; a longer mean service time is the allowed wait itself."""
LONGEST_WAIT = TIMEOUT - 1.0
"""Most `Workload.wait` in seconds: an abandoned request, which has waited for `TIMEOUT`, is a violation."""
HEADROOM = 3
"""The limit of replicas as a multiple of the highest need: so high that a policy that orders too many is
seen."""
FIRST_BUSY_SHARE = 0.7
"""Share of the initial replicas that the load of the lead keeps busy."""
STEP = 0.125
"""Step of a routed run in seconds: short, as a wake from zero may be; a power of two, so that its multiples
are exact."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The inputs of a run. Times are seconds from the start of the run, which is the end of the history."""

    name: str
    start: float
    """Start of the run in Unix seconds."""
    seconds: int
    """Length of the run."""
    load: Flow | Requests
    replica: Replica
    wait: float
    """Seconds of wait beyond which a request is a violation."""
    min_replicas: int = 1
    history: LoadHistory = field(default_factory=LoadHistory)
    lead: int = LEAD_SECONDS
    """Unscored seconds at the start of the run."""
    outages: tuple[tuple[float, float], ...] = ()
    """Start and end of each span without readings."""
    tags: frozenset[str] = frozenset()
    """See `Recipe.tags`."""
    routed: bool = False
    """Whether requests wait at their replica, as behind Envoy, and not in a shared queue."""
    ending: float = 0.0
    """Seconds for which a removed replica without requests is still paid; only with `routed`."""

    @property
    def step(self) -> float:
        """Seconds to whose multiples a run rounds times up: finer with `routed`."""
        return STEP if self.routed else 1.0

    def plant(self) -> Plant:
        """Return new replicas for one run, a fluid or a queueing model by the kind of the load."""
        if isinstance(self.load, Flow):
            return FluidPlant(self.load, self.replica)
        if self.routed:
            return RoutedPlant(self.load, self.replica, ending=self.ending)
        return QueuePlant(self.load, self.replica)

    def schedules(self, *, lean: bool) -> Schedules:
        """Return the schedules with perfect knowledge, none below `min_replicas`.

        Args:
            lean: whether to compute lean schedules too, which takes some seconds for many requests.
        """
        if isinstance(self.load, Flow):
            schedules = oracle.of_flow(self.load, self.replica, self.wait, lean=lean)
        else:
            schedules = oracle.of_requests(self.load, self.replica, self.wait, self.seconds, lean=lean)

        def bounded(schedules: tuple[Floats, ...]) -> tuple[Floats, ...]:
            return tuple(np.maximum(need, self.min_replicas) for need in schedules)

        return Schedules(bounded(schedules.plain), bounded(schedules.lean))

    def oracle(self, startup: float) -> Oracle:
        """Return the oracle, without lean schedules, for starts that take `startup` seconds."""
        return oracle.oracle_of(self.schedules(lean=False), startup)

    def limit(self) -> int:
        """Return the most replicas that a policy may order: `HEADROOM` times the highest need."""
        plainest = self.schedules(lean=False).plain[0]
        return HEADROOM * int(max(plainest.max(), 1))

    def policy_inputs(self, limit: int) -> PolicyInputs:
        """Return the inputs of a policy that may order `limit` replicas."""
        capacity = Capacity(self.replica.rate, float(self.replica.concurrency))
        return PolicyInputs(capacity, self.replica.service_seconds, self.min_replicas, limit, self.history)

    def first_replicas(self) -> int:
        """Return the replicas at the start of a run, of which the lead, or the first minute if it is
        longer, keeps `FIRST_BUSY_SHARE` busy.
        """
        flow = self.load.per_second(self.seconds)
        mean = float(flow.work[: max(self.lead, 60)].mean())
        return max(math.ceil(mean / self.replica.rate / FIRST_BUSY_SHARE), self.min_replicas)

    def pure_work(self) -> float:
        """Return the replica-seconds of the scored load if each replica were always fully used."""
        flow = self.load.per_second(self.seconds)
        return float(flow.work[self.lead :].sum()) / self.replica.rate


def allowed_wait(replica: Replica) -> float:
    """Return the `Workload.wait` of requests without an objective of their own: their mean service time, from
    `SHORTEST_WAIT` to `LONGEST_WAIT`.
    """
    return min(max(replica.service_seconds, SHORTEST_WAIT), LONGEST_WAIT)


def history_of(flow: Flow, end: float, step: int = 60) -> LoadHistory:
    """Return the sums of each `step` seconds of a flow that ends at `end`, in Unix seconds.

    Whole steps only: the first seconds of the flow, which fill no step, are dropped.
    """
    steps = len(flow.arrivals) // step

    def summed(values: Floats) -> Floats:
        sums: Floats = values[len(values) - steps * step :].reshape(steps, step).sum(axis=1)
        return sums

    return LoadHistory(end, float(step), summed(flow.arrivals), summed(flow.work))
