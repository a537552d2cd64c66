"""Usage of replicas as a share of their limits, from the readings of their nodes' counters. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from serving.resources.formats import quantity
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage

PERCENT = 100.0
OLD_SECONDS = 60.0
"""Age in seconds from which on a value is unknown."""


class CpuRate(NamedTuple):
    """The processors that a container used between its last two samples."""

    cores: float
    at: float
    """Monotonic seconds of the reading with the later sample."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The counters of one node at one time, and the rates since the earlier ones."""

    at: float
    """Monotonic seconds."""
    figures: Mapping[ContainerKey, ContainerUsage]
    cpu_rates: Mapping[ContainerKey, CpuRate] = field(default_factory=dict)


def next_reading(
    before: NodeUsage | None, at: float, figures: Mapping[ContainerKey, ContainerUsage]
) -> NodeUsage:
    """Return the reading of a node with the rates since its last one.

    A container whose sample is still that of the last reading keeps its rate: a node samples more seldom than
    it is read.

    Args:
        before: the last reading of the node.
        at: monotonic seconds.
        figures: the counters.
    """
    if before is None or at - before.at > OLD_SECONDS:
        return NodeUsage(at, figures)
    rates = {where: _rate(before, where, at, usage) for where, usage in figures.items()}
    return NodeUsage(at, figures, {where: rate for where, rate in rates.items() if rate is not None})


def _rate(before: NodeUsage, where: ContainerKey, at: float, usage: ContainerUsage) -> CpuRate | None:
    earlier = before.figures.get(where)
    if earlier is None or usage.cpu_seconds < earlier.cpu_seconds:
        return None
    has_times = bool(usage.at and earlier.at)
    seconds = usage.at - earlier.at if has_times else at - before.at
    if seconds > 0:
        return CpuRate((usage.cpu_seconds - earlier.cpu_seconds) / seconds, at)
    rate = before.cpu_rates.get(where)
    return rate if rate is not None and at - rate.at < OLD_SECONDS else None


def share(resource: str, pods: Iterable[Mapping[str, Any]], nodes: Mapping[str, NodeUsage]) -> float | None:
    """Return the containers' mean usage as a share of their limits, 0 to 1; None where none is known.

    Args:
        resource: `cpu`, `memory` or `gpu`.
        pods: the replicas; containers without a limit are left out.
        nodes: the readings by node.
    """
    shares = []
    for pod in pods:
        node = nodes.get(pod["spec"].get("nodeName", ""))
        if node is None:
            continue
        for container in pod["spec"].get("containers") or ():
            where = ContainerKey(pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            share = _share(resource, container, where, node)
            if share is not None:
                shares.append(share)
    return sum(shares) / len(shares) if shares else None


def _share(resource: str, container: Mapping[str, Any], where: ContainerKey, node: NodeUsage) -> float | None:
    figures = node.figures.get(where)
    if figures is None:
        return None
    if resource == "gpu":
        return figures.gpu_duty / PERCENT
    limits = (container.get("resources") or {}).get("limits") or {}
    limit = float(quantity.parse(limits[resource])) if resource in limits else 0.0
    if limit <= 0:
        return None
    if resource == "memory":
        return figures.working_set / limit
    rate = node.cpu_rates.get(where)
    return rate.cores / limit if rate is not None else None
