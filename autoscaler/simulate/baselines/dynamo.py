"""NVIDIA Dynamo's planner: every three minutes the forecast load over the throughput of an engine is the
floor, and every five seconds a replica is added or removed by what is in flight.

Source: ai-dynamo/dynamo `components/src/dynamo/planner/core/throughput_scaling.py` (0c9050c),
`load_scaling.py` (0c6da1e, its thresholds for throughput), `load/predictors.py` (260b6ae). Its auto-ARIMA
is an ARIMA(1,1,0) here, fitted anew each time to the last 50 values. Profiled throughput at the SLA is
the capacity; requests in flight over the concurrency stand for the use of the KV cache. Load is even over
replicas, so all of them agree.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from autoscaler.decision import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

THROUGHPUT_INTERVAL = 180.0
"""Seconds between adjustments of the floor: throughput_adjustment_interval_seconds."""
LOAD_INTERVAL = 5.0
"""Seconds between adjustments by load: load_adjustment_interval_seconds."""
FULL = 1.0
"""Use of the cache above which a replica is added."""
SPARE = 0.6
"""Use of the cache below which a replica is removed."""
FEWEST = 5
"""Values before which the forecast is the last value."""
KEPT = 50
"""Values that the model is fitted to."""
STEADY = 0.99
"""The most that a change is followed by, of itself: beyond it the forecast would run away."""


def forecast(values: Sequence[float]) -> float:
    """Return the next value: the last and, from five on, the share of the last change that persists."""
    if len(values) < FEWEST:
        return values[-1] if values else 0.0
    changes = [after - before for before, after in pairwise(values)]
    squares = sum(change * change for change in changes[:-1])
    products = sum(before * after for before, after in pairwise(changes))
    persists = min(max(products / squares, -STEADY), STEADY) if squares > 0 else 0.0
    return max(values[-1] + persists * changes[-1], 0.0)


class Dynamo:
    """At least one replica; nothing changes while replicas are on their way."""

    interval = LOAD_INTERVAL

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        history = inputs.history
        together = max(round(THROUGHPUT_INTERVAL / history.step), 1)
        steps = len(history.work) // together
        work = history.work[len(history.work) - steps * together :].reshape(steps, together).sum(axis=1)
        self._rates = deque((work[-KEPT:] / (together * history.step)).tolist(), KEPT)
        self._work = self._seconds = self._ahead = 0.0
        self._floor = 1

    def decide(self, observation: Observation) -> Decision:
        """Return the need of the load, but at least the floor."""
        load, replicas = observation.load, observation.replicas
        if load is None:
            return within_bounds(self._inputs, replicas.desired, "NoData", least=1)
        self._count(load)
        if replicas.starting or replicas.ready == 0:
            return within_bounds(self._inputs, replicas.desired, "ScalingInProgress", least=1)
        change = _change(load.in_flight / (replicas.ready * self._inputs.capacity.concurrency))
        count = max(replicas.ready + change, self._floor)
        reason = "Throughput" if count == self._floor else "Load"
        return within_bounds(self._inputs, count, reason, least=1, work=self._ahead)

    def _count(self, load: Load) -> None:
        """Set the floor for the next three minutes, every three minutes."""
        self._work += load.work
        self._seconds += load.seconds
        if self._seconds < THROUGHPUT_INTERVAL:
            return
        self._rates.append(self._work / self._seconds)
        self._work = self._seconds = 0.0
        self._ahead = forecast(self._rates)
        self._floor = math.ceil(self._ahead / self._inputs.capacity.rate - 1e-9)


def _change(use: float) -> int:
    return (use > FULL) - (use < SPARE)
