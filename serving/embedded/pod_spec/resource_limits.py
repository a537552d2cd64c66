"""The `resources.limits` of a container, as numbers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from serving.resources import names
from serving.resources.formats import quantity

_MOST_BYTES = 2**63 - 1
"""Kubernetes' largest quantity. The kernel reads a limit modulo 2^64, so a larger one could be tiny."""


@dataclass(frozen=True)
class ContainerLimits:
    """The limits of one container; None is no limit."""

    cpu: Decimal | None = None
    """In cores."""
    memory: int | None = None
    """In bytes."""
    unsupported: tuple[str, ...] = ()
    """Other limited resources, which have no effect."""


def limits(container: Mapping[str, Any]) -> ContainerLimits:
    """Return the container's limits.

    Raises:
        ValueError: a limit is not a quantity.
    """
    amounts = (container.get("resources") or {}).get("limits") or {}
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    return ContainerLimits(
        None if cpu is None else quantity.parse(cpu),
        None if memory is None else min(int(quantity.parse(memory)), _MOST_BYTES),
        tuple(sorted(set(amounts) - {"cpu", "memory", names.GPU_RESOURCE})),
    )
