"""Usage of replicas as a share of their limits, from two readings of their nodes' counters. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serving.resources.formats import quantity
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The counters of one node at one time."""

    at: float
    """Monotonic seconds."""
    figures: Mapping[ContainerKey, ContainerUsage]


def share(
    resource: str,
    pods: Iterable[Mapping[str, Any]],
    before: Mapping[str, NodeUsage],
    after: Mapping[str, NodeUsage],
) -> float | None:
    """Return the containers' mean usage as a share of their limits, 0 to 1; None where none is known.

    Args:
        resource: `cpu`, `memory` or `gpu`.
        pods: the replicas; containers without a limit are left out.
        before: earlier readings by node, for CPU time.
        after: the later readings by node.
    """
    shares = []
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if node not in after:
            continue
        for container in pod["spec"].get("containers") or ():
            where = ContainerKey(pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            share = _share(resource, container, where, before.get(node), after[node])
            if share is not None:
                shares.append(share)
    return sum(shares) / len(shares) if shares else None


def _share(
    resource: str,
    container: Mapping[str, Any],
    where: ContainerKey,
    before: NodeUsage | None,
    after: NodeUsage,
) -> float | None:
    figures = after.figures.get(where)
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
    earlier = before.figures.get(where) if before is not None else None
    if before is None or earlier is None or figures.cpu_seconds < earlier.cpu_seconds:
        return None
    seconds = figures.at - earlier.at if figures.at and earlier.at else after.at - before.at
    return (figures.cpu_seconds - earlier.cpu_seconds) / seconds / limit if seconds > 0 else None
