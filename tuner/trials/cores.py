"""Allots separate cores to a trial's replica and its load generator. Pure."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Cores:
    """The cores of one trial, by the numbers that the kernel gives them."""

    replica: tuple[int, ...]
    generator: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether replica and generator share a core, as the machine has only one."""
        return bool(set(self.replica) & set(self.generator))

    @property
    def used(self) -> frozenset[int]:
        """All cores of the trial."""
        return frozenset(self.replica + self.generator)

    @property
    def cpuset(self) -> str:
        """The replica's cores, as in `names.CPUSET_ANNOTATION`: `0,2`."""
        return ",".join(map(str, self.replica))


def allot(machine_cores: Sequence[int], limit: Decimal | None, taken: Collection[Cores]) -> Cores | None:
    """Return free cores, the first for the replica and the last for the generator; None if too few are free.

    The generator gets as many as the replica if possible, so that it is not the bottleneck. A replica without
    a limit gets three quarters of the machine. The first trial on a machine always fits, as the limit is cut
    to the machine.

    Args:
        machine_cores: numbers of all cores that trials may use.
        limit: CPU limit of the replica in cores; None for no limit.
        taken: cores of other trials.
    """
    total = len(machine_cores)
    if total == 1:
        return None if taken else Cores(tuple(machine_cores), tuple(machine_cores))
    three_quarters = total - max(1, total // 4)
    most = total - 1  # one core remains for the generator
    replica_count = three_quarters if limit is None else max(1, min(math.ceil(limit), most))
    generator_count = min(replica_count, total - replica_count)
    busy = frozenset[int]().union(*(cores.used for cores in taken))
    free = [core for core in sorted(machine_cores) if core not in busy]
    if len(free) < replica_count + generator_count:
        return None
    return Cores(tuple(free[:replica_count]), tuple(free[len(free) - generator_count :]))
