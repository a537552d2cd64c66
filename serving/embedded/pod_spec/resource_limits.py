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
    """Return the container's limits; an amount of 0 is no limit, as at the kubelet.

    Raises:
        ValueError: a limit is not a quantity.
    """
    amounts = (container.get("resources") or {}).get("limits") or {}
    values = (amounts.get(name) for name in ("cpu", "memory"))
    cpu, memory = (quantity.parse(0 if value is None else value) for value in values)
    return ContainerLimits(
        cpu if cpu > 0 else None,
        min(int(memory), _MOST_BYTES) if memory > 0 else None,
        tuple(sorted(set(amounts) - {"cpu", "memory", names.GPU_RESOURCE})),
    )
