"""What the controller remembers of one Autoscaler between two decisions."""

import logging
import math
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.decision import Decision
from autoscaler.observation import Capacity, Observation
from autoscaler.others import Raised
from autoscaler.policy import schedules
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.sizer import Sizer
from autoscaler.starts import Starts

log = logging.getLogger(__name__)

Object = dict[str, Any]


FEW = 20.0
"""Requests between two readings below which a fixed count needs no policy: probes of a revision are fewer."""

REFRESH_SECONDS = 60.0
"""Between computations of how long an idle replica is kept, which take half a millisecond."""


@dataclass(slots=True)
class Scaled:
    """One Autoscaler."""

    config: PolicyConfig
    saved: Object | None = None
    """What was kept of an earlier run of the controller, until a policy is made of it."""
    sizer: Sizer | None = None
    """None as long as there is nothing to size: the count is fixed, and nobody has asked."""
    starts: Starts = field(default_factory=Starts)
    decision: Decision | None = None
    is_taught: bool = False
    """Whether the load of the past was stored, or its backfill was requested."""
    is_active: bool = True
    """Whether the count is written, and not only what it would be."""
    decided: float = -math.inf
    """Seconds on a clock that nobody sets, as all times here."""
    said: float = -math.inf
    """When the status was written last."""
    changes: list[Object] = field(default_factory=list)
    """As `status.decisions`."""
    wrote: tuple[int, int] | None = None
    """The count that was written last, and the resourceVersion which that gave, until a watch has shown it."""
    theirs: list[float] = field(default_factory=list)
    """When the count was another one though nobody here had written it."""
    known: int | None = None
    """The count as it was written or seen last."""
    raised: Raised = field(default_factory=Raised)
    pods: list[Object] = field(default_factory=list)
    """Its replicas' Pods, as of the last decision."""
    would: int | None = None
    """What was said last that the count would be, where it is not written."""
    refused: float = math.inf
    """Since when the scale subresource refuses the count."""
    intended: int | None = None
    """The count of a write that was begun since."""
    keep: float = 0.0
    """Seconds of idleness after which the last replicas go, as of `keep_at` (Unix seconds)."""
    keep_at: float = -math.inf

    @property
    def is_fixed(self) -> bool:
        """Whether the bounds leave no choice."""
        config = self.config
        return config.min_replicas == config.max_replicas and not config.schedules

    def configure(self, config: PolicyConfig) -> None:
        """Size by this from now on, with all that was learned."""
        if config == self.config:
            return
        self.config = config
        if self.sizer is not None:
            self.saved = self.sizer.state()
            self.sizer = None

    def decide(self, observation: Observation) -> Decision:
        """Return the count to have now."""
        if self.sizer is None:
            load = observation.load
            is_idle = load is None or (load.arrivals < FEW and not load.held)
            if self.is_fixed and is_idle and self.saved is None:
                return _fixed(self.config.min_replicas)
            self.sizer = self._made()
        decision = self.sizer.decide(observation)
        if self.is_fixed and decision.needed <= self.config.max_replicas:
            fixed = _fixed(self.config.min_replicas)
            return replace(decision, reason=fixed.reason, message=fixed.message)
        return decision

    def _made(self) -> Sizer:
        sizer = Sizer(self.config)
        if self.saved is not None:
            try:
                sizer.restore(self.saved)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                log.warning("what was kept cannot be used, and is learned again: %r", error)
                sizer = Sizer(self.config)
            self.saved = None
        return sizer

    def state(self) -> Object | None:
        """Return what to keep; None where nothing was learned since the start."""
        return self.sizer.state() if self.sizer is not None else None

    def teach(self, state: Object) -> None:
        """Take what a policy learned of the load of the past; starts and capacity stay as they were learned here.

        Args:
            state: of a policy of the same target.
        """
        if self.sizer is None:
            self.saved = self.saved or state
            return
        mine = self.sizer.state()
        idle = state["idle"] | {"last": mine["idle"]["last"] or state["idle"]["last"]}
        self.sizer.restore(mine | {"forecast": state["forecast"], "idle": idle})

    def schedule(self, now: float) -> str:
        """Return the names of the schedules that hold."""
        config = self.config
        return schedules.bounds(config.schedules, config.min_replicas, config.max_replicas, now)[2]

    def learned(self, now: float) -> Object | None:
        """Return `status.learned`."""
        if self.sizer is None:
            return None
        known: Capacity | None = self.sizer.capacity.value
        found: Object = {}
        if known is not None:
            found["capacity"] = {
                "rate": _two(known.rate), "concurrency": _two(known.concurrency), "source": self.sizer.capacity.source,
            }  # fmt: skip
        if self.sizer.startup.known is not None:
            found["startupSeconds"] = _two(self.sizer.startup.known)
        keep = self._keep_alive(self.sizer, now)
        if keep is not None:
            found["keepAliveSeconds"] = keep
        return found or None

    def _keep_alive(self, sizer: Sizer, now: float) -> float | None:
        """Return the seconds without a request after which the last replicas go; None where they never do."""
        config = self.config
        if schedules.bounds(config.schedules, config.min_replicas, config.max_replicas, now)[0] > 0:
            return None
        if config.zero.idle is not None:
            return config.zero.idle
        if not 0 <= now - self.keep_at < REFRESH_SECONDS:
            self.keep_at = now
            self.keep = _two(sizer.idle.keep_seconds(now, sizer.startup.expected((), now), config.risk))
        return self.keep


def _two(value: float) -> float:
    """Two digits: what is learned moves a little at every reading."""
    if not math.isfinite(value) or value <= 0:
        return 0.0
    return round(value, 1 - math.floor(math.log10(value)))


def _fixed(count: int) -> Decision:
    return Decision(count, "FixedCount", "minReplicas and maxReplicas are the same", needed=count)
