"""State of one Autoscaler between decisions."""

import logging
import math
from dataclasses import dataclass, field, replace

from autoscaler.decision import Decision
from autoscaler.observation import Capacity, Observation
from autoscaler.other_writers import Raised
from autoscaler.policy import schedules
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.sizer import Sizer
from autoscaler.starts import Starts
from serving.objects import Object

log = logging.getLogger(__name__)


FEW = 20.0
"""Requests between two readings below which a fixed count needs no policy: probes of a revision are fewer."""

REFRESH_SECONDS = 60.0
"""Between computations of how long an idle replica is kept, which take half a millisecond."""


@dataclass(slots=True)
class TargetState:
    """The decisions, writes and learned figures of one Autoscaler. Times are monotonic seconds."""

    config: PolicyConfig
    saved: Object | None = None
    """The stored state of an earlier run, or a backfilled one, until the policy takes it."""
    uid: str = ""
    """Of the Autoscaler: another one of the same name learns anew."""
    sizer: Sizer | None = None
    """None while there is nothing to size: the count is fixed, and no load was observed."""
    starts: Starts = field(default_factory=Starts)
    decision: Decision | None = None
    is_backfilled: bool = False
    """Whether past load was stored, or its backfill was requested."""
    is_active: bool = True
    """Whether decisions are written, and not only reported."""
    decided: float = -math.inf
    """Time of the last decision."""
    reported: float = -math.inf
    """Time of the last status write."""
    changes: list[Object] = field(default_factory=list)
    """The entries of `status.decisions`."""
    last_write: tuple[int, int] | None = None
    """The last written count and its resourceVersion, until the watch has shown it."""
    changes_by_others: list[float] = field(default_factory=list)
    """Times at which another writer had changed the count."""
    known: int | None = None
    """The count that was last written or observed."""
    raised: Raised = field(default_factory=Raised)
    pods: list[Object] = field(default_factory=list)
    """The Pods of the target, as of the last decision."""
    reported_dry_run_count: int | None = None
    """The count of the last Event of a decision that is only reported."""
    refused: float = math.inf
    """Time since which the scale subresource refuses the count."""
    intended: int | None = None
    """The count of a write whose answer was not received yet."""
    keep: float = 0.0
    """Seconds of idleness after which the last replicas are removed, as of `keep_at` (Unix seconds)."""
    keep_at: float = -math.inf

    @property
    def is_fixed(self) -> bool:
        """Whether the bounds leave no choice."""
        config = self.config
        return config.min_replicas == config.max_replicas and not config.schedules

    def configure(self, config: PolicyConfig) -> None:
        """Size by `config` from now on; learned state is kept."""
        if config == self.config:
            return
        self.config = config
        if self.sizer is not None:
            self.sizer = self._sizer(self.sizer.state())

    def decide(self, observation: Observation) -> Decision:
        """Return the decision for an observation."""
        if self.sizer is None:
            load = observation.load
            is_idle = load is None or (load.arrivals < FEW and not load.held)
            if self.is_fixed and is_idle and self.saved is None:
                return _fixed(self.config.min_replicas)
            self.sizer = self._sizer(self.saved)
            if self.saved is not None and observation.replicas.desired > 0:
                self.sizer.idle.begin_anew(observation.now)
            self.saved = None
        decision = self.sizer.decide(observation)
        if self.is_fixed and decision.needed <= self.config.max_replicas:
            fixed = _fixed(self.config.min_replicas)
            return replace(decision, reason=fixed.reason, message=fixed.message)
        return decision

    def _sizer(self, state: Object | None) -> Sizer:
        """Return a policy of the current spec with a learned state."""
        sizer = Sizer(self.config)
        if state is None:
            return sizer
        try:
            sizer.restore(state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            log.warning("the stored state cannot be used, and is learned again: %r", error)
            return Sizer(self.config)
        return sizer

    def state(self) -> Object | None:
        """Return the state to store; None where nothing was learned since the start."""
        return self.sizer.state() if self.sizer is not None else None

    def restore_history(self, state: Object) -> None:
        """Take the load history of another policy's state; starts and capacity stay as learned here."""
        if self.sizer is None:
            self.saved = self.saved or state
            return
        mine = self.sizer.state()
        idle = state["idle"] | {"last": mine["idle"]["last"] or state["idle"]["last"]}
        self.sizer.restore(mine | {"forecast": state["forecast"], "idle": idle})

    def schedule(self, now: float) -> str:
        """Return the names of the schedules that are active at `now`."""
        config = self.config
        return schedules.bounds_at(config.schedules, config.min_replicas, config.max_replicas, now).schedule

    def learned(self, now: float) -> Object | None:
        """Return `status.learned`."""
        if self.sizer is None:
            return None
        known: Capacity | None = self.sizer.capacity.value
        learned: Object = {}
        if known is not None:
            learned["capacity"] = {
                "rate": _two(known.rate),
                "concurrency": _two(known.concurrency),
                "source": self.sizer.capacity.source,
            }
        if self.sizer.startup.known is not None:
            learned["startupSeconds"] = _two(self.sizer.startup.known)
        keep = self._keep_alive(self.sizer, now)
        if keep is not None:
            learned["keepAliveSeconds"] = keep
        return learned or None

    def _keep_alive(self, sizer: Sizer, now: float) -> float | None:
        """Return the idle seconds after which the last replicas are removed; None where they never are."""
        config = self.config
        if schedules.bounds_at(config.schedules, config.min_replicas, config.max_replicas, now).least > 0:
            return None
        if config.zero.idle is not None:
            return config.zero.idle
        if not 0 <= now - self.keep_at < REFRESH_SECONDS:
            self.keep_at = now
            self.keep = _two(sizer.idle.keep_seconds(now, sizer.startup.expected((), now), config.risk))
        return self.keep


def _two(value: float) -> float:
    """Round to two digits, as learned figures change a little at every reading."""
    if not math.isfinite(value) or value <= 0:
        return 0.0
    return round(value, 1 - math.floor(math.log10(value)))


def _fixed(count: int) -> Decision:
    return Decision(count, "FixedCount", "minReplicas and maxReplicas are the same", needed=count)
