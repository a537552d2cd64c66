"""Usage of replicas as a share of their limits, from readings of their nodes' cAdvisor pages. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from serving.resources.formats import quantity
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage

OLD_SECONDS = 60.0
"""Age of a reading from which on its values count as unknown."""


class CpuRate(NamedTuple):
    """The mean number of cores that a container used between its last two samples."""

    cores: float
    at: float
    """Monotonic seconds of the reading with the later sample."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One reading of one node: the counters of its containers, and the rates since the previous reading."""

    at: float
    """Monotonic seconds of the reading."""
    figures: Mapping[ContainerKey, ContainerUsage]
    cpu_rates: Mapping[ContainerKey, CpuRate] = field(default_factory=dict)


def next_reading(
    before: NodeUsage | None, at: float, figures: Mapping[ContainerKey, ContainerUsage]
) -> NodeUsage:
    """Return the reading of a node with the rates since its last reading.

    A container keeps its rate while its sample is that of the last reading: a node is read more often than it
    samples.

    Args:
        before: the last reading of the node; None without one.
        at: monotonic seconds of the new reading.
        figures: the counters of the node's containers.
    """
    if before is None or at - before.at > OLD_SECONDS:
        return NodeUsage(at, figures)
    rates = {key: _rate(before, key, at, usage) for key, usage in figures.items()}
    return NodeUsage(at, figures, {key: rate for key, rate in rates.items() if rate is not None})


def _rate(before: NodeUsage, key: ContainerKey, at: float, usage: ContainerUsage) -> CpuRate | None:
    earlier = before.figures.get(key)
    if earlier is None or usage.cpu_seconds < earlier.cpu_seconds:
        return None
    has_times = bool(usage.at and earlier.at)
    seconds = usage.at - earlier.at if has_times else at - before.at
    if seconds > 0:
        return CpuRate((usage.cpu_seconds - earlier.cpu_seconds) / seconds, at)
    rate = before.cpu_rates.get(key)
    return rate if rate is not None and at - rate.at < OLD_SECONDS else None


def share(resource: str, pods: Iterable[Mapping[str, Any]], nodes: Mapping[str, NodeUsage]) -> float | None:
    """Return the mean over the containers of their usage as a share of their limit, 0 to 1.

    The share of `gpu` is the mean duty cycle of a container's GPUs, with or without a limit. Containers
    without a known share do not count; None: no container has one.

    Args:
        resource: `cpu`, `memory` or `gpu`.
        pods: the Pods of the replicas.
        nodes: the last reading of each node, by the node's name.
    """
    shares = []
    for pod in pods:
        node = nodes.get(pod["spec"].get("nodeName", ""))
        if node is None:
            continue
        for container in pod["spec"].get("containers") or ():
            key = ContainerKey(pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            share = _share(resource, container, key, node)
            if share is not None:
                shares.append(share)
    return sum(shares) / len(shares) if shares else None


def _share(resource: str, container: Mapping[str, Any], key: ContainerKey, node: NodeUsage) -> float | None:
    figures = node.figures.get(key)
    if figures is None:
        return None
    if resource == "gpu":
        return figures.gpu_share
    limits = (container.get("resources") or {}).get("limits") or {}
    limit = float(quantity.parse(limits[resource])) if resource in limits else 0.0
    if limit <= 0:
        return None
    if resource == "memory":
        return figures.working_set / limit
    rate = node.cpu_rates.get(key)
    return rate.cores / limit if rate is not None else None
