"""The saturation rule of llm-d's Workload Variant Autoscaler: steps of a replica by spare cache and queue.

Source: llm-d/llm-d-workload-variant-autoscaler@b08b1c7 `internal/saturation/analyzer.go`,
`docs/saturation-analyzer.md`, `docs/user-guide/scale-to-zero.md`. There is one variant; requests in
flight over the concurrency of a replica stand for the use of its KV cache. Load is even over replicas, so
either all of them are saturated or none is. The HPA that carries its targets out is left away, with its
delays: that is in its favour.
"""

from autoscaler.decision import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Highest, requests_in_service, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

POLLING = 5.0
"""Seconds between checks for held requests at zero; it checks every 100 ms, readings come every 5 s."""
INTERVAL = 60.0
"""Seconds between optimisations: GLOBAL_OPT_INTERVAL."""
PEAK = 60.0
"""Seconds of which the highest usage and queue are taken."""
CACHE = 0.8
"""Share of the cache from which on a replica is saturated."""
QUEUE = 5.0
"""Waiting requests from which on a replica is saturated."""
SPARE_CACHE = 0.1
"""Mean share of the cache left to saturation, below which a replica is added."""
SPARE_QUEUE = 3.0
"""Mean waiting requests left to saturation, below which a replica is added."""
RETENTION = 600.0
"""Seconds without requests before zero, where zero is allowed."""


def step(ready: int, cache: float, queue: float) -> int:
    """Return 1, 0 or -1: the replicas to add, from the peaks of cache usage and queue per replica."""
    saturated = cache >= CACHE or queue >= QUEUE
    if saturated or CACHE - cache < SPARE_CACHE or QUEUE - queue < SPARE_QUEUE:
        return 1
    if ready < 2:
        return 0
    share = ready / (ready - 1)
    safe = CACHE - cache * share >= SPARE_CACHE and QUEUE - queue * share >= SPARE_QUEUE
    return -1 if safe else 0


class Wva:
    """Nothing changes while a replica is on its way."""

    interval = POLLING

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._cache, self._queue = Highest(PEAK), Highest(PEAK)
        self._peaks = (0.0, 0.0)
        self._next = self._busy_at = float("-inf")

    def decide(self, observation: Observation) -> Decision:
        """Return the target of the analyzer, or the wake from zero between its rounds."""
        now, load, replicas = observation.now, observation.load, observation.replicas
        if self._busy_at == float("-inf"):
            self._busy_at = now
        if load is not None:
            self._see(load, replicas.ready)
            if load.arrivals or requests_in_service(load) > 0:
                self._busy_at = now
        if replicas.desired == 0:
            waits = load is not None and load.held > 0
            return within_bounds(self._inputs, int(waits), "ScaledFromZero" if waits else "AtZero")
        if now < self._next:
            return within_bounds(self._inputs, replicas.desired, "BetweenRounds", least=1)
        self._next = now + INTERVAL
        if self._inputs.min_replicas == 0 and now - self._busy_at > RETENTION:
            return within_bounds(self._inputs, 0, "ScaledToZero")
        if load is None or replicas.starting or replicas.ready != replicas.desired:
            return within_bounds(self._inputs, replicas.desired, "InTransition", least=1)
        change = step(replicas.ready, *self._peaks)
        return within_bounds(self._inputs, replicas.ready + change, _REASONS[change], least=1)

    def _see(self, load: Load, ready: int) -> None:
        if ready == 0:
            return
        slots = ready * self._inputs.capacity.concurrency
        cache = self._cache.of(load.end, min(load.in_flight / slots, 1.0))
        self._peaks = (cache, self._queue.of(load.end, max(load.in_flight - slots, 0.0) / ready))


_REASONS = {1: "Saturated", 0: "Kept", -1: "RemovalSafe"}
