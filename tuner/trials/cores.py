"""Which processor cores a trial's replica and its load generator run on, so that neither disturbs the other. Pure."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from serving.resources import quantity


@dataclass(frozen=True)
class Cores:
    """Of one trial."""

    target: tuple[int, ...]
    generator: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether the machine is too small to keep them apart."""
        return bool(set(self.target) & set(self.generator))

    @property
    def used(self) -> frozenset[int]:
        """All of them."""
        return frozenset(self.target + self.generator)

    @property
    def cpuset(self) -> str:
        """The replica's, as in `names.CPUSET_ANNOTATION`."""
        return ",".join(map(str, self.target))


def wanted(template: dict[str, Any]) -> Decimal | None:
    """Return the cores that a Pod template may use at most; None where a container has no limit."""
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get("cpu")
        for container in template["spec"]["containers"]
    ]
    if None in limits:
        return None
    return sum((quantity.parse(str(limit)) for limit in limits), Decimal(0))


def allot(machine: Sequence[int], limit: Decimal | None, taken: Collection[Cores]) -> Cores | None:
    """Return cores that no other trial has: the first for the replica, the last for the generator.

    The generator gets as many as the replica, as far as there are: with fewer it could be the limit. A replica
    without a limit gets three quarters, as it would take all. None: another trial has to end first; the first
    trial on a machine always fits.

    Args:
        machine: the cores that there are.
        limit: of the replica; None is none.
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
