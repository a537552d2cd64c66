"""One run of one policy on one workload: the loop between plant, readings, policy and replicas. Pure.

The plant serves the requests, the pool has the replicas, the readings bring the plant's counts to the policy
after a delay, and the policy's decisions set the pool's desired count. Times are in seconds from the start of
the run; those of observations and of the timeline are Unix seconds, from `Workload.start` on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation, Replicas
from autoscaler.simulate.delivery import DeliveredReadings, Delivery, readings
from autoscaler.simulate.plant import NO_COUNTS, Plant, PlantCounts, RequestWaits
from autoscaler.simulate.policy import UTILISATION, WAITING, Policy
from autoscaler.simulate.policy_inputs import PolicyInputs
from autoscaler.simulate.pool import ReplicaPool
from autoscaler.simulate.startup import Startup
from autoscaler.simulate.workloads.workload import Workload

TIMELINE_POINTS = 2_000
"""Most decisions in a timeline: as many as a page can show."""
HELD_SECONDS = 0.001
"""Seconds of the `Load` of a report of held requests, which has no arrivals: the next reading has them."""
IDLE_REASONS = ("Idle", "FixedCount", "MinReplicas", "KeepAlive")
"""Reasons of decisions that only time changes while no request arrives; KeepAlive only with one replica."""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One decision of a timeline."""

    time: float
    """Unix seconds."""
    rate: float
    """Arriving work per second since the previous point."""
    ready: int
    alive: int
    """Paid replicas: ready or starting."""
    waiting: float
    """Requests that wait for a slot."""
    decision: Decision


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run."""

    waits: RequestWaits
    replica_seconds: float
    """Replica-seconds after the unscored lead, starting and draining replicas included."""
    actions: tuple[tuple[float, int], ...]
    """Changes of the desired count: seconds of the run, and difference."""
    most_alive: int
    """Most paid replicas after the unscored lead."""
    decisions: int
    """The number of decisions."""
    reasons: dict[str, int]
    """Decisions by reason."""
    timeline: tuple[TimelinePoint, ...] = ()


def run(
    workload: Workload,
    startup: Startup,
    build: Callable[[PolicyInputs], Policy],
    *,
    limit: int,
    seed: int,
    delivery: Delivery | None = None,
    timeline: bool = False,
) -> Run:
    """Run a new policy on the workload; the same seed gives every policy the same starts and readings.

    Args:
        workload: load, replicas and objective.
        startup: law of start-up times, which the policy does not know.
        build: makes the policy.
        limit: most replicas that the policy may ask for; usually `workload.limit()`.
        seed: of the random start-up times and delays of readings.
        delivery: delays and losses of readings; None: the defaults, with the workload's outages.
        timeline: whether the result has a timeline.
    """
    startup_draws, reading_draws = np.random.default_rng((seed, 17)).spawn(2)
    delivery = delivery or Delivery(outages=workload.outages)
    first_replicas = min(workload.first_replicas(), limit)
    loop = _Loop(
        workload=workload,
        plant=workload.plant(),
        pool=ReplicaPool(startup, startup_draws, limit, ready=first_replicas, now=0.0),
        policy=build(workload.policy_inputs(limit)),
        readings=readings(delivery, workload.seconds, reading_draws),
        point_seconds=max(workload.seconds // TIMELINE_POINTS, 1) if timeline else 0,
        immediate=delivery.immediate,
        idle_seconds=delivery.idle_seconds,
    )
    return loop.run()


@dataclass(slots=True)
class _Loop:
    """The state of one run."""

    workload: Workload
    plant: Plant
    pool: ReplicaPool
    policy: Policy
    readings: DeliveredReadings
    point_seconds: int
    """Seconds between the points of the timeline; 0: no timeline."""
    immediate: bool = False
    """See `Delivery.immediate`."""
    idle_seconds: float = 0.0
    """See `Delivery.idle_seconds`."""
    _reason: str = ""
    """Reason of the last decision."""
    _decided: float = 0.0
    """Time of the last decision."""
    _counts_at_readings: list[PlantCounts] = field(default_factory=list)
    """The plant's counts at each reading that was taken, in the order of `readings`."""
    _observed_readings: int = 0
    """Readings that the policy has observed."""
    _last_observed: PlantCounts = NO_COUNTS
    """The counts of the last reading that the policy has observed."""
    _most_alive: int = 0
    """Most paid replicas after the unscored lead."""
    _decisions: int = 0
    _reasons: dict[str, int] = field(default_factory=dict)
    _points: list[TimelinePoint] = field(default_factory=list)
    _work_at_point: float = 0.0
    """Total work that had arrived at the last point of the timeline."""

    def run(self) -> Run:
        """Run to the end: at each time the due starts end, the policy decides, and the plant advances."""
        end, lead = self.workload.seconds, self.workload.lead
        interval = max(round(self.policy.interval), 1)
        now = decide_at = 0.0
        ready_before = self.pool.ready
        """Ready replicas at the previous time."""
        paid_before: float | None = None
        """Replica-seconds of the unscored lead; None within it."""
        while now < end:
            self.pool.advance(now)
            if paid_before is None and now >= lead:
                paid_before = self.pool.seconds + self.plant.draining
            if self.immediate and self.pool.desired == 0 and (held := self.plant.counts().waiting) > 0:
                self._decide(now, held)
                self.pool.ask(max(self.pool.desired, 1))  # a held request wakes a replica under any policy
            if now >= decide_at:
                if self._is_due(now) or self.pool.ready > ready_before:
                    self._decide(now)
                decide_at = now + interval
            elif self.immediate and self.pool.ready > ready_before:
                self._decide(now)
            ready_before = self.pool.ready
            if now >= lead:
                self._most_alive = max(self._most_alive, self.pool.alive)
            until = min(self._next_time(decide_at), end)
            if now < lead:
                until = min(until, lead)
            self.plant.advance(until, self.pool.ready)
            now = until
            if (
                len(self._counts_at_readings) < len(self.readings.taken)
                and now >= self.readings.taken[len(self._counts_at_readings)]
            ):
                self._counts_at_readings.append(self.plant.counts())
        self.pool.advance(end)
        return Run(
            waits=self.plant.waits(),
            replica_seconds=self.pool.seconds + self.plant.draining - (paid_before or 0.0),
            actions=tuple(self.pool.actions),
            most_alive=self._most_alive,
            decisions=self._decisions,
            reasons=self._reasons,
            timeline=tuple(self._points),
        )

    def _next_time(self, decide_at: float) -> float:
        """Return the time of the next decision, reading, or end of a start, rounded up to the step.

        At zero replicas with `immediate` it is the next step, to look for held requests.
        """
        at, step = decide_at, self.workload.step
        if len(self._counts_at_readings) < len(self.readings.taken):
            at = min(at, self.readings.taken[len(self._counts_at_readings)])
        if self.immediate and self.pool.desired == 0:
            at = min(at, self.plant.counts().time + step)
        return math.ceil(min(at, self.pool.next_change) / step) * step

    def _is_due(self, now: float) -> bool:
        """Return whether a decision is due: something but time may change it, or enough time has passed."""
        is_falling = self._reason == "KeepAlive" and self.pool.desired > 1
        if self._reason not in IDLE_REASONS or is_falling or now - self._decided >= self.idle_seconds:
            return True
        counts = self.plant.counts()
        return counts.arrivals > self._last_observed.arrivals or counts.busy + counts.waiting > 0

    def _decide(self, now: float, held: float = 0.0) -> None:
        """Let the policy decide, and set the desired count.

        Args:
            now: seconds of the run.
            held: held requests, of a report between two readings; 0: no report.
        """
        load, gauges = self._new_readings(now)
        moment = self.workload.start + now
        if held:
            if load is None:
                load = Load(
                    moment - HELD_SECONDS, moment, arrivals=0, work=0, finished=0, in_flight=0, held=held
                )
            load = replace(load, held=max(load.held, held))
        observation = Observation(moment, _observed_replicas(self.pool, self.workload.start), load, gauges)
        decision = self.policy.decide(observation)
        self.pool.ask(decision.replicas)
        self._reason, self._decided = decision.reason, now
        self._decisions += 1
        self._reasons[decision.reason] = self._reasons.get(decision.reason, 0) + 1
        if self.point_seconds and (not self._points or moment - self._points[-1].time >= self.point_seconds):
            self._add_point(moment, decision)

    def _new_readings(self, now: float) -> tuple[Load | None, dict[str, float]]:
        """Return load and gauges of the readings that have arrived since the last decision."""
        end = self._observed_readings
        while end < len(self._counts_at_readings) and self.readings.arrived[end] <= now:
            end += 1
        if end == self._observed_readings:
            return None, {}
        arrived = self._counts_at_readings[self._observed_readings : end]
        self._observed_readings = end
        before, after = self._last_observed, arrived[-1]
        self._last_observed = after
        return _load(before, after, self.workload.start, _idle(before, arrived)), _gauges(before, after)

    def _add_point(self, moment: float, decision: Decision) -> None:
        counts = self.plant.counts()
        passed = moment - self._points[-1].time if self._points else 0.0
        rate = (counts.work - self._work_at_point) / passed if passed else 0.0
        self._work_at_point = counts.work
        self._points.append(
            TimelinePoint(moment, rate, self.pool.ready, self.pool.alive, counts.waiting, decision)
        )


def _observed_replicas(pool: ReplicaPool, start: float) -> Replicas:
    """Return the pool's replicas with times in Unix seconds, as is `start`, the start of the run."""
    seen = pool.observed()
    if not seen.starting:
        return seen
    return replace(seen, starting=tuple(start + created for created in seen.starting))


def _idle(before: PlantCounts, readings: Sequence[PlantCounts]) -> float:
    """Return the seconds from `before` to the last of the readings before the first request."""
    idle = 0.0
    for counts in readings:
        if counts.arrivals > before.arrivals or before.busy + before.waiting > 0:
            break
        idle = counts.time - before.time
    return idle


def _load(before: PlantCounts, after: PlantCounts, start: float, idle: float) -> Load:
    """Return the load between two readings; `start` is the start of the run in Unix seconds."""
    finished = after.finished - before.finished
    at_zero = after.ready == 0
    return Load(
        start=start + before.time,
        end=start + after.time,
        arrivals=after.arrivals - before.arrivals,
        work=after.work - before.work,
        finished=finished,
        in_flight=after.busy + (0.0 if at_zero else after.waiting),
        held=after.waiting if at_zero else 0.0,
        latency=(after.latency_sum - before.latency_sum) / finished if finished > 0 else None,
        errors=after.dropped - before.dropped,
        idle=idle,
    )


def _gauges(before: PlantCounts, after: PlantCounts) -> dict[str, float]:
    """Return the gauges of `policy`; none without ready replicas, which have no utilisation."""
    possible_work = after.possible_work - before.possible_work
    if possible_work <= 0 or after.ready == 0:
        return {}
    return {UTILISATION: (after.finished_work - before.finished_work) / possible_work, WAITING: after.waiting}
