"""The expected scaling of services as power laws: the prior mean of a search. Pure.

Trials override it. Services differ in the exponents, but rarely in their signs.
"""

import numpy as np

from tuner.search.problem import Floats
from tuner.specs.space import Space, SpaceAxis

CONCURRENCY = 0.3
"""Exponent of throughput over concurrency (batch, processes, users), chosen on the public tables
(docs/decisions/search.md)."""
GPU = 0.5
"""Exponent of throughput over a GPU's share or price: a small model does not fill a large GPU. Chosen
likewise."""
CPU = 1.0
"""Exponent of throughput over cores."""
MOST_AT_ONCE = 1024
"""Greatest batch size; whole numbers up to it in arguments and environment count as numbers of workers."""

_GAINS = {"throughput", "tokensPerSecond", "throughputPerCost", "tokensPerCost", "costAtRate"}
"""Objectives that improve as throughput grows."""
_PAID = {"cost", "throughputPerCost", "tokensPerCost", "costAtRate"}
"""Objectives that worsen as cost grows."""


def log_throughput(log_capacity: Floats, log_at_once: Floats) -> Floats:
    """Return the expected log throughput, up to a constant.

    Args:
        log_capacity: (n,) log throughput expected from the resources alone.
        log_at_once: (n,) log concurrency.
    """
    return np.asarray(log_capacity + CONCURRENCY * log_at_once)


def log_objective(metric: str, log_throughput: Floats, log_cost: Floats) -> Floats:
    """Return the expected log objective, to be maximised, of an `objectiveMetricName`."""
    return np.asarray((metric in _GAINS) * log_throughput - (metric in _PAID) * log_cost)


def of_space(space: Space, metric: str, log_cost: Floats) -> Floats:
    """Return the (n,) expected log objectives of an experiment's specs, whose loads are searched."""
    capacity = _along(space, {"resource/cpu": CPU, "resource/gpu.cores": GPU})
    at_once = _along(space, {axis.label: 1.0 for axis in space.axes if _is_concurrency(axis)})
    return log_objective(metric, log_throughput(capacity, at_once), log_cost)


def _along(space: Space, exponents: dict[str, float]) -> Floats:
    """Return the (n,) log of a product of powers of the specs' values; `exponents` are by an axis's label."""
    total = np.zeros(space.size)
    for axis, ranks in zip(space.axes, space.ranks().T, strict=True):
        if exponent := exponents.get(axis.label, 0.0):
            positions = np.array(axis.positions)
            logs = positions * np.log(2.0) if axis.scale == "log" else np.log(positions)
            total += exponent * logs[ranks]
    return total


def _is_concurrency(axis: SpaceAxis) -> bool:
    """Return whether an axis counts requests that a replica serves at once: batch size, or processes,
    threads, workers.

    The meaning of arguments and variables is unknown: whole values from 1 to MOST_AT_ONCE count as workers.
    """
    if axis.category in ("resource", "batching"):
        return axis.name == "batchSize"
    return axis.ordered and all(text.isdecimal() and 1 <= int(text) <= MOST_AT_ONCE for text in axis.values)
