"""NVIDIA Dynamo's planner: a floor from the forecast load every three minutes, and a replica more or fewer by
the requests in flight every five seconds.

Source: ai-dynamo/dynamo `components/src/dynamo/planner/core/throughput_scaling.py` (0c9050c),
`load_scaling.py` (0c6da1e, its thresholds for throughput), `load/predictors.py` (260b6ae). Its auto-ARIMA
is an ARIMA(1,1,0) here, fitted at each forecast to the last 50 values. The floor is the forecast over the
profiled throughput of an engine at the SLA, here the capacity. Requests in flight over the concurrency of a
replica stand for the use of its KV cache. Load is even over replicas, so one use decides for all of them.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation
from autoscaler.simulate.baselines.measures import within_bounds
from autoscaler.simulate.policy_inputs import PolicyInputs

THROUGHPUT_INTERVAL = 180.0
"""Seconds between adjustments of the floor: throughput_adjustment_interval_seconds."""
LOAD_INTERVAL = 5.0
"""Seconds between adjustments by load: load_adjustment_interval_seconds."""
SCALE_UP_USE = 1.0
"""Use of the cache above which a replica is added."""
SCALE_DOWN_USE = 0.6
"""Use of the cache below which a replica is removed."""
LEAST_VALUES = 5
"""Fewest values for a fit; with fewer the forecast is the last value."""
FITTED_VALUES = 50
"""Most recent values that the model is fitted to."""
MAX_COEFFICIENT = 0.99
"""Largest share of a change that the next change repeats: changes with a coefficient of 1 never fade."""


def forecast(values: Sequence[float]) -> float:
    """Return the next value by ARIMA(1,1,0): the last value, and a fitted share of the last change."""
    if len(values) < LEAST_VALUES:
        return values[-1] if values else 0.0
    changes = [after - before for before, after in pairwise(values)]
    squares = sum(change * change for change in changes[:-1])
    products = sum(before * after for before, after in pairwise(changes))
    coefficient = min(max(products / squares, -MAX_COEFFICIENT), MAX_COEFFICIENT) if squares > 0 else 0.0
    return max(values[-1] + coefficient * changes[-1], 0.0)


class Dynamo:
    """The planner's decisions: at least one replica, and no change while a replica starts."""

    interval = LOAD_INTERVAL

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        history = inputs.history
        steps_per_interval = max(round(THROUGHPUT_INTERVAL / history.step), 1)
        intervals = len(history.work) // steps_per_interval
        work = (
            history.work[len(history.work) - intervals * steps_per_interval :]
            .reshape(intervals, steps_per_interval)
            .sum(axis=1)
        )
        self._rates = deque(
            (work[-FITTED_VALUES:] / (steps_per_interval * history.step)).tolist(), FITTED_VALUES
        )
        """Work per second of the last intervals of `THROUGHPUT_INTERVAL`."""
        self._work = self._seconds = 0.0
        """Work and length of the current interval so far."""
        self._forecast_rate = 0.0
        self._floor = 1

    def decide(self, observation: Observation) -> Decision:
        """Return the need of the load, but at least the floor."""
        load, replicas = observation.load, observation.replicas
        if load is None:
            return within_bounds(self._inputs, replicas.desired, "NoData", least=1)
        self._update_floor(load)
        if replicas.starting or replicas.ready == 0:
            return within_bounds(self._inputs, replicas.desired, "ScalingInProgress", least=1)
        change = _change(load.in_flight / (replicas.ready * self._inputs.capacity.concurrency))
        count = max(replicas.ready + change, self._floor)
        reason = "Throughput" if count == self._floor else "Load"
        return within_bounds(self._inputs, count, reason, least=1, work=self._forecast_rate)

    def _update_floor(self, load: Load) -> None:
        """Set the floor for the next three minutes, every three minutes."""
        self._work += load.work
        self._seconds += load.seconds
        if self._seconds < THROUGHPUT_INTERVAL:
            return
        self._rates.append(self._work / self._seconds)
        self._work = self._seconds = 0.0
        self._forecast_rate = forecast(self._rates)
        self._floor = math.ceil(self._forecast_rate / self._inputs.capacity.rate - 1e-9)


def _change(use: float) -> int:
    """Return the replicas to add, 1, 0 or -1, for the used share of the cache."""
    return (use > SCALE_UP_USE) - (use < SCALE_DOWN_USE)
