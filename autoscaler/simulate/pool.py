"""The replicas of a simulated target, from order to removal: starting, failing, ready, removed. Pure."""

import math
from bisect import insort
from dataclasses import dataclass, field

import numpy as np

from autoscaler.observation import Replicas
from autoscaler.simulate.startup import Startup


@dataclass(frozen=True, slots=True, order=True)
class _Start:
    """A replica that starts; times are in seconds of the run. The order is that of the ends."""

    ends: float
    created: float
    succeeds: bool


@dataclass(slots=True)
class ReplicaPool:
    """Replicas at the time `now`; call `advance` to a time before any other method at that time."""

    startup: Startup
    draws: np.random.Generator
    """Source of random start-up times and failures."""
    limit: int
    """Most replicas for which the nodes have room."""
    ready: int
    """Ready replicas."""
    now: float
    """Seconds of the run."""
    desired: int = 0
    seconds: float = 0.0
    """Paid replica-seconds so far: of ready and of starting replicas."""
    actions: list[tuple[float, int]] = field(default_factory=list)
    """Changes of the desired count: seconds of the run, and difference."""
    _starting: list[_Start] = field(default_factory=list)
    """In order of their ends."""
    _started: list[float] = field(default_factory=list)
    """Start-up times in seconds that were not observed yet."""
    _failed: list[float] = field(default_factory=list)
    """Seconds that failed starts took and that were not observed yet."""

    def __post_init__(self) -> None:
        self.desired = self.ready

    @property
    def alive(self) -> int:
        """Paid replicas: ready or starting."""
        return self.ready + len(self._starting)

    @property
    def next_change(self) -> float:
        """End of the next start; infinity without one."""
        return self._starting[0].ends if self._starting else math.inf

    def advance(self, now: float) -> None:
        """End the starts that are due by `now`; a failed start begins again, and is still paid."""
        while self._starting and self._starting[0].ends <= now:
            start = self._starting[0]
            took = start.ends - start.created
            self._pay(start.ends)
            del self._starting[0]
            if start.succeeds:
                self.ready += 1
                self._started.append(took)
            else:
                self._failed.append(took)
                self._order(start.ends)
        self._pay(now)

    def ask(self, desired: int) -> None:
        """Set the desired count: order missing replicas; remove the youngest starts first, then ready
        replicas.
        """
        desired = min(max(desired, 0), self.limit)
        if desired != self.desired:
            self.actions.append((self.now, desired - self.desired))
            self.desired = desired
        for _ in range(desired - self.alive):
            self._order(self.now)
        for _ in range(min(self.alive - desired, len(self._starting))):
            self._starting.remove(max(self._starting, key=lambda start: start.created))
        self.ready = min(self.ready, desired)

    def observed(self) -> Replicas:
        """Return the replicas as a policy observes them, but `starting` in seconds of the run. Each end of a
        start and each failure is observed once.
        """
        created = tuple(sorted(start.created for start in self._starting))
        seen = Replicas(self.desired, self.ready, created, tuple(self._started), tuple(self._failed))
        self._started.clear()
        self._failed.clear()
        return seen

    def _order(self, now: float) -> None:
        """Start a replica at `now`."""
        succeeds = bool(self.draws.random() >= self.startup.failure_share)
        insort(self._starting, _Start(now + self.startup.draw(self.draws), now, succeeds))

    def _pay(self, now: float) -> None:
        """Advance the time to `now`, and pay the replicas until then."""
        self.seconds += self.alive * (now - self.now)
        self.now = now
