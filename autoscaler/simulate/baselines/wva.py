"""The saturation rule of llm-d's Workload Variant Autoscaler: steps of a replica by spare cache and queue.

Source: llm-d/llm-d-workload-variant-autoscaler@b08b1c7 `internal/saturation/analyzer.go`,
`docs/saturation-analyzer.md`, `docs/user-guide/scale-to-zero.md`. There is one variant; requests in
flight over the concurrency of a replica stand for the use of its KV cache. Load is even over replicas, so
either all of them are saturated or none is. The HPA that carries its targets out, and the delays of that HPA,
are omitted, which is in favour of this baseline.
"""

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import Highest, requests_in_service, within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

POLLING = 5.0
"""Seconds between checks for held requests at zero; it checks every 100 ms, readings come every 5 s."""
INTERVAL = 60.0
"""Seconds between optimisations: GLOBAL_OPT_INTERVAL."""
PEAK_WINDOW = 60.0
"""Seconds over which the highest use of the cache and the longest queue are taken."""
SATURATED_CACHE = 0.8
"""Share of the cache from which on a replica is saturated."""
SATURATED_QUEUE = 5.0
"""Waiting requests per replica from which on a replica is saturated."""
SPARE_CACHE = 0.1
"""Share of the cache between its use and saturation below which a replica is added."""
SPARE_QUEUE = 3.0
"""Waiting requests per replica between the queue and saturation below which a replica is added."""
RETENTION = 600.0
"""Seconds without requests before zero, where zero is allowed."""


def step(ready: int, cache: float, queue: float) -> int:
    """Return the replicas to add: 1, 0 or -1.

    Args:
        ready: ready replicas.
        cache: peak use of a replica's cache, 0 to 1.
        queue: peak of the waiting requests per replica.
    """
    saturated = cache >= SATURATED_CACHE or queue >= SATURATED_QUEUE
    if saturated or SATURATED_CACHE - cache < SPARE_CACHE or SATURATED_QUEUE - queue < SPARE_QUEUE:
        return 1
    if ready < 2:
        return 0
    growth = ready / (ready - 1)  # of the load of each replica when one is removed
    cache_is_safe = SATURATED_CACHE - cache * growth >= SPARE_CACHE
    queue_is_safe = SATURATED_QUEUE - queue * growth >= SPARE_QUEUE
    return -1 if cache_is_safe and queue_is_safe else 0


class Wva:
    """The analyzer's steps, with scale to zero; nothing changes while a replica starts."""

    interval = POLLING

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._highest_cache, self._highest_queue = Highest(PEAK_WINDOW), Highest(PEAK_WINDOW)
        self._peak_cache = self._peak_queue = 0.0
        self._next_round = self._busy_at = float("-inf")
        """Unix seconds of the next optimisation, and of the last decision that saw a request; before any
        request, of the first decision."""

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
        if now < self._next_round:
            return within_bounds(self._inputs, replicas.desired, "BetweenRounds", least=1)
        self._next_round = now + INTERVAL
        if self._inputs.min_replicas == 0 and now - self._busy_at > RETENTION:
            return within_bounds(self._inputs, 0, "ScaledToZero")
        if load is None or replicas.starting or replicas.ready != replicas.desired:
            return within_bounds(self._inputs, replicas.desired, "InTransition", least=1)
        change = step(replicas.ready, self._peak_cache, self._peak_queue)
        return within_bounds(self._inputs, replicas.ready + change, _REASONS[change], least=1)

    def _see(self, load: Load, ready: int) -> None:
        """Add a reading to the peaks."""
        if ready == 0:
            return
        slots = ready * self._inputs.capacity.concurrency
        self._peak_cache = self._highest_cache.of(load.end, min(load.in_flight / slots, 1.0))
        queue = max(load.in_flight - slots, 0.0) / ready
        self._peak_queue = self._highest_queue.of(load.end, queue)


_REASONS = {1: "Saturated", 0: "Kept", -1: "RemovalSafe"}
