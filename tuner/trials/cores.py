"""Allots cores to a trial's replica and its load generator, so that neither disturbs the other. Pure."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from serving.resources.formats import quantity


@dataclass(frozen=True)
class Cores:
    """The cores of one trial."""

    target: tuple[int, ...]
    generator: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether replica and generator share a core, as the machine is too small."""
        return bool(set(self.target) & set(self.generator))

    @property
    def used(self) -> frozenset[int]:
        """All cores of the trial."""
        return frozenset(self.target + self.generator)

    @property
    def cpuset(self) -> str:
        """The replica's cores, as in `names.CPUSET_ANNOTATION`."""
        return ",".join(map(str, self.target))


def wanted(template: dict[str, Any]) -> Decimal | None:
    """Return the cores that a Pod template may use at most; None if a container has no limit."""
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get("cpu")
        for container in template["spec"]["containers"]
    ]
    if None in limits:
        return None
    return sum((quantity.parse(str(limit)) for limit in limits), Decimal(0))


def allot(machine: Sequence[int], limit: Decimal | None, taken: Collection[Cores]) -> Cores | None:
    """Return free cores, the first for the replica and the last for the generator; None if there are too few.

    The generator gets as many as the replica if possible, so that it is not the bottleneck. A replica without
    a limit gets three quarters, as it would take all. The first trial on a machine always fits.

    Args:
        machine: all cores.
        limit: of the replica; None for no limit.
        taken: by other trials.
    """
    if len(machine) == 1:
        return None if taken else Cores(tuple(machine), tuple(machine))
    most = len(machine) - max(1, len(machine) // 4) if limit is None else len(machine) - 1
    target = most if limit is None else max(1, min(math.ceil(limit), most))
    generator = min(target, len(machine) - target)
    busy = frozenset[int]().union(*(cores.used for cores in taken))
    free = [core for core in sorted(machine) if core not in busy]
    if len(free) < target + generator:
        return None
    return Cores(tuple(free[:target]), tuple(free[len(free) - generator :]))
