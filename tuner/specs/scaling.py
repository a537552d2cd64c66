"""What is expected of one spec against another before anything is measured: how services scale, as powers and up to a constant. Pure.

It is where a search begins, and what it leaves as its trials say otherwise: services differ in these powers, few in their signs. It knows no
service, and nothing that was measured.
"""

import numpy as np

from tuner.search.problem import Floats
from tuner.specs.space import Axis, Space

CONCURRENCY = 0.3
"""Throughput as a power of what is worked on at once (batch, processes, users); chosen on the public tables (benchmarks/results/search.md)."""
GPU = 0.5
"""Throughput as a power of a GPU's share, or of its price: a small model does not fill a large GPU. Chosen as above."""
CPU = 1.0
"""Throughput as a power of cores: what has one of two cores computes half as much."""
MOST_AT_ONCE = 1024
"""Greatest value of a batching axis: whole numbers up to it, in arguments and environment, are taken for counts of workers and their like."""

_GAINS = {"throughput", "tokensPerSecond", "throughputPerCost", "tokensPerCost", "costAtRate"}
"""Objectives that are better where more is answered."""
_PAID = {"cost", "throughputPerCost", "tokensPerCost", "costAtRate"}
"""Objectives that are worse where more is paid."""


def log_throughput(log_capacity: Floats, log_at_once: Floats) -> Floats:
    """Return the expected logarithm of what is answered in a second, up to a constant.

    Args:
        log_capacity: logarithm of what resources alone let expect.
        log_at_once: logarithm of how much is worked on at once.
    """
    return np.asarray(log_capacity + CONCURRENCY * log_at_once)


def log_latency(log_capacity: Floats, log_at_once: Floats) -> Floats:
    """Return the expected logarithm of a latency where that much is always worked on: Little's law, L = c / X (Operations Research 9, 1961).

    Not for a load that is itself searched: at the highest that meets a limit, every spec is near the limit.
    """
    return np.asarray(log_at_once - log_throughput(log_capacity, log_at_once))


def log_objective(metric: str, log_throughput: Floats, log_cost: Floats) -> Floats:
    """Return the expected logarithm of an objective, which is to be maximised, by its `objectiveMetricName`."""
    return np.asarray((metric in _GAINS) * log_throughput - (metric in _PAID) * log_cost)


def of_space(space: Space, metric: str, log_cost: Floats) -> Floats:
    """Return (n,) the expected log objective of every spec of an experiment, whose load is searched for each."""
    capacity = _along(space, {"resource/cpu": CPU, "resource/gpu.cores": GPU})
    at_once = _along(space, {axis.label: 1.0 for axis in space.axes if _counts(axis)})
    return log_objective(metric, log_throughput(capacity, at_once), log_cost)


def _along(space: Space, powers: dict[str, float]) -> Floats:
    found = np.zeros(space.size)
    for axis, ranks in zip(space.axes, space.ranks().T, strict=True):
        if power := powers.get(axis.label, 0.0):
            at = np.array(axis.positions)
            found += power * (at * np.log(2.0) if axis.scale == "log" else np.log(at))[ranks]
    return found


def _counts(axis: Axis) -> bool:
    """Whether an axis says how much is worked on at once."""
    if axis.category in ("resource", "batching"):
        return axis.name == "batchSize"
    return axis.ordered and all(text.isdecimal() and 1 <= int(text) <= MOST_AT_ONCE for text in axis.values)
