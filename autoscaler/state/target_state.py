"""The state of one Autoscaler between decisions: its knowledge, its decisions and its written status."""

import logging
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from autoscaler.decision_values import Decision
from autoscaler.observation import Capacity, Observation
from autoscaler.other_writers import Raised
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.limits import schedules
from autoscaler.policy.sizer import Sizer
from autoscaler.starts import Starts
from serving.objects import Object

log = logging.getLogger(__name__)

LEAST_REQUESTS_FOR_POLICY = 20.0
"""Requests between two readings below which a target with a fixed count gets no policy: the probes of a
revision are fewer."""
REFRESH_SECONDS = 60.0
"""Seconds between computations of the keep-alive, each of which takes half a millisecond."""
_BACKFILLED = "backfilled"
"""Key of the stored state: False while a requested backfill has not ended."""


class LastWrite(NamedTuple):
    """A write of the scale subresource."""

    replicas: int
    resource_version: int
    """The target's resourceVersion after the write."""


class LastReport(NamedTuple):
    """A write of the Autoscaler's status."""

    fingerprint: bytes
    """`status.fingerprint` of the stored status."""
    resource_version: int
    """The Autoscaler's resourceVersion after the write."""


@dataclass(slots=True)
class TargetState:
    """The decisions, writes and learned figures of one Autoscaler.

    Times are monotonic seconds, and `now` of a method is in Unix seconds.
    """

    config: PolicyConfig
    saved_state: Object | None = None
    """The learned state of an earlier process, or of a backfill, until `sizer` is created with it."""
    uid: str = ""
    """Uid of the Autoscaler: a new Autoscaler of the same name gets a new state."""
    sizer: Sizer | None = None
    """The policy; None before the first decision that needs one: a fixed count without load does not."""
    starts: Starts = field(default_factory=Starts)
    decision: Decision | None = None
    """The last decision, after the guards."""
    is_backfill_requested: bool = False
    """Whether a backfill was requested, or a state was read whose backfill has ended: none is requested
    again."""
    is_backfill_pending: bool = False
    """Whether a requested backfill, also of an earlier process, has not ended: the load was neither read nor
    given up."""
    is_active: bool = True
    """Whether decisions are written, and not only reported, as of the last decision."""
    decided_at: float = -math.inf
    """Time of the last decision."""
    reported_at: float = -math.inf
    """Time of the last status write."""
    last_report: LastReport | None = None
    """The last write of the status; None before the first one, and while one is in flight."""
    changes: list[Object] = field(default_factory=list)
    """The entries of `status.decisions`, the newest first."""
    target_uid: str = ""
    """Uid of the scale target, which another one replaces with a new revision. `last_write`, `known_count`,
    `unconfirmed_count`, `changes_by_others` and `raised` are of this target."""
    last_write: LastWrite | None = None
    """The last write of the count, until the watch has shown it."""
    changes_by_others: list[float] = field(default_factory=list)
    """Times at which changes of the count by another writer were observed."""
    known_count: int | None = None
    """The count that was last written or observed; another observed count is another writer's."""
    raised: Raised = field(default_factory=Raised)
    """The last count that was raised without a write of this process."""
    pods: list[Object] = field(default_factory=list)
    """The Pods of the target, as of the last decision."""
    reported_dry_run_count: int | None = None
    """The count of the last Event `WouldScale`."""
    refused_since: float = math.inf
    """Time since which the scale subresource refuses the count; infinity while it does not."""
    unconfirmed_count: int | None = None
    """The count of a write whose response was not received: the write may have been applied."""
    keep_alive: float = 0.0
    """The learned keep-alive: seconds without a request after which the last replicas are removed."""
    keep_alive_computed: float = -math.inf
    """Unix seconds at which `keep_alive` was computed."""

    @classmethod
    def begun(cls, uid: str, saved: Object | None, changes: list[Object]) -> "TargetState":
        """Return the state of an Autoscaler before its first decision in this process.

        Args:
            uid: of the Autoscaler.
            saved: the result of `learned_state` in an earlier process.
            changes: the entries of `status.decisions`.
        """
        is_pending = saved is not None and not saved.get(_BACKFILLED, True)  # absent in older states
        return cls(
            PolicyConfig(),
            saved,
            uid=uid,
            changes=changes,
            is_backfill_requested=saved is not None and not is_pending,
            is_backfill_pending=is_pending,
        )

    @property
    def is_fixed(self) -> bool:
        """Whether minimum and maximum are the same, and no schedule changes them."""
        config = self.config
        return config.min_replicas == config.max_replicas and not config.schedules

    def configure(self, config: PolicyConfig) -> None:
        """Replace the configuration of the policy; learned state is kept."""
        if config == self.config:
            return
        self.config = config
        if self.sizer is not None:
            self.sizer = self._sizer(self.sizer.state())

    def decide(self, observation: Observation) -> Decision:
        """Return the decision for an observation."""
        if self.sizer is None:
            load = observation.load
            is_idle = load is None or (load.arrivals < LEAST_REQUESTS_FOR_POLICY and not load.held)
            if self.is_fixed and is_idle and self.saved_state is None:
                return _fixed(self.config.min_replicas)
            self.sizer = self._sizer(self.saved_state)
            if self.saved_state is not None and observation.replicas.desired > 0:
                # Requests may have arrived since the state was stored or backfilled.
                self.sizer.idle.begin_anew(observation.now)
            self.saved_state = None
        decision = self.sizer.decide(observation)
        if self.is_fixed and decision.needed <= self.config.max_replicas:  # else the maximum is the reason
            fixed = _fixed(self.config.min_replicas)
            return replace(decision, reason=fixed.reason, message=fixed.message)
        return decision

    def _sizer(self, state: Object | None) -> Sizer:
        """Return a policy of the current configuration with this learned state, unless it is malformed."""
        sizer = Sizer(self.config)
        if state is None:
            return sizer
        try:
            sizer.restore(state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            log.warning("the stored state cannot be used, and is learned again: %r", error)
            return Sizer(self.config)
        return sizer

    def learned_state(self) -> Object | None:
        """Return the learned state to store; None without a policy."""
        if self.sizer is None:
            return None
        return self.sizer.state() | {_BACKFILLED: not self.is_backfill_pending}

    def end_backfill(self) -> None:
        """Record that the requested backfill has ended, with or without a load."""
        self.is_backfill_pending = False

    def restore_history(self, state: Object) -> None:
        """Take the load and the idle times of a backfilled state; learned starts and capacity are kept."""
        if self.sizer is None:
            self.saved_state = self.saved_state or state
            return
        own = self.sizer.state()
        # The last request that this process observed is newer than the backfilled one.
        idle = state["idle"] | {"last": own["idle"]["last"] or state["idle"]["last"]}
        self.sizer.restore(own | {"forecast": state["forecast"], "idle": idle})

    def bounds(self, now: float) -> schedules.Bounds:
        """Return the bounds at `now`, by the spec and its schedules."""
        config = self.config
        return schedules.bounds_at(config.schedules, config.min_replicas, config.max_replicas, now)

    def learned_status(self, now: float) -> Object | None:
        """Return `status.learned`; None if nothing is learned."""
        if self.sizer is None:
            return None
        capacity: Capacity | None = self.sizer.capacity.value
        learned: Object = {}
        if capacity is not None:
            learned["capacity"] = {
                "rate": _two_digits(capacity.rate),
                "concurrency": _two_digits(capacity.concurrency),
                "source": self.sizer.capacity.source,
            }
        if self.sizer.startup.known is not None:
            learned["startupSeconds"] = _two_digits(self.sizer.startup.known)
        keep_alive = self._keep_alive(self.sizer, now)
        if keep_alive is not None:
            learned["keepAliveSeconds"] = keep_alive
        return learned or None

    def _keep_alive(self, sizer: Sizer, now: float) -> float | None:
        """Return the configured or learned keep-alive in seconds; None while the minimum is above 0."""
        config = self.config
        if self.bounds(now).least > 0:
            return None
        if config.zero.idle is not None:
            return config.zero.idle
        is_recent = 0 <= now - self.keep_alive_computed < REFRESH_SECONDS
        if not is_recent:
            startup = sizer.startup.expected((), now)
            self.keep_alive = _two_digits(sizer.idle.keep_seconds(now, startup, config.risk))
            self.keep_alive_computed = now
        return self.keep_alive


def _two_digits(value: float) -> float:
    """Round to two significant digits, as learned figures change a little at every reading."""
    if not math.isfinite(value) or value <= 0:
        return 0.0
    return round(value, 1 - math.floor(math.log10(value)))


def _fixed(count: int) -> Decision:
    return Decision(count, "FixedCount", "minReplicas and maxReplicas are the same", needed=count)
