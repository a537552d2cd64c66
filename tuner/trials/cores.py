"""Allots separate cores to a trial's replica and its load generator. Pure."""

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
        """Whether replica and generator share the only core."""
        return bool(set(self.target) & set(self.generator))

    @property
    def used(self) -> frozenset[int]:
        """All cores of the trial."""
        return frozenset(self.target + self.generator)

    @property
    def cpuset(self) -> str:
        """The replica's cores, as in `names.CPUSET_ANNOTATION`."""
        return ",".join(map(str, self.target))


def limit_of(template: dict[str, Any]) -> Decimal | None:
    """Return the CPU limit of a Pod template in cores; None if a container has none."""
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get("cpu")
        for container in template["spec"]["containers"]
    ]
    if None in limits:
        return None
    return sum((quantity.parse(str(limit)) for limit in limits), Decimal(0))


def allot(machine: Sequence[int], limit: Decimal | None, taken: Collection[Cores]) -> Cores | None:
    """Return free cores, the first for the replica and the last for the generator; None if too few are free.

    The generator gets as many as the replica if possible, so that it is not the bottleneck. A replica without
    a limit gets three quarters of the machine. The first trial on a machine always fits.

    Args:
        machine: all cores.
        limit: of the replica; None for no limit.
        taken: cores of other trials.
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
