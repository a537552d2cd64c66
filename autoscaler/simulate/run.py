"""One run of one policy on one workload: the loop between plant, readings, policy and replicas. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.decision import Decision
from autoscaler.observation import Load, Observation, Replicas
from autoscaler.simulate.delivery import Delivery, Readings, readings
from autoscaler.simulate.plant import Plant, PlantCounts, Waits
from autoscaler.simulate.policy import UTILISATION, WAITING, Policy
from autoscaler.simulate.policy_inputs import PolicyInputs
from autoscaler.simulate.pool import Pool
from autoscaler.simulate.startup import Startup
from autoscaler.simulate.workloads.workload import Workload

TIMELINE_POINTS = 2_000
"""Most decisions in a timeline: as many as a page can show."""
HELD_SECONDS = 0.001
"""Length of the reading of a report of held requests; arrivals are in the next reading."""
STEADY = ("Idle", "FixedCount", "MinReplicas", "KeepAlive")
"""Reasons of decisions that only time changes while no request arrives; KeepAlive for the last replica."""


@dataclass(frozen=True, slots=True)
class Point:
    """One decision of a timeline."""

    time: float
    """Unix seconds."""
    rate: float
    """Arriving work per second since the previous point."""
    ready: int
    alive: int
    waiting: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run."""

    waits: Waits
    replica_seconds: float
    """Replica-seconds after the unscored lead, starting and draining replicas included."""
    actions: tuple[tuple[float, int], ...]
    """Changes of the desired count: seconds of the run, and difference."""
    most_alive: int
    """After the unscored lead."""
    decisions: int
    reasons: dict[str, int]
    """Decisions by reason."""
    timeline: tuple[Point, ...] = ()


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
        limit: most replicas; usually `workload.limit()`.
        seed: of start-up times and readings.
        delivery: delays and losses of readings; None: the protocol's, with the workload's outages.
        timeline: whether decisions are kept for a page.
    """
    streams = np.random.default_rng((seed, 17)).spawn(2)
    given = delivery or Delivery(outages=workload.outages)
    loop = _Loop(
        workload=workload,
        plant=workload.plant(),
        pool=Pool(startup, streams[0], limit, min(workload.first_replicas(), limit), 0.0),
        policy=build(workload.terms(limit)),
        readings=readings(given, workload.seconds, streams[1]),
        every=max(workload.seconds // TIMELINE_POINTS, 1) if timeline else 0,
        prompt=given.prompt,
        steady=given.steady,
    )
    return loop.run()


@dataclass(slots=True)
class _Loop:
    workload: Workload
    plant: Plant
    pool: Pool
    policy: Policy
    readings: Readings
    every: int
    """Seconds between the points of the timeline; 0: no timeline."""
    prompt: bool = False
    """See `Delivery.prompt`."""
    steady: float = 0.0
    """See `Delivery.steady`."""
    _reason: str = ""
    """Reason of the last decision."""
    _decided: float = 0.0
    """Time of the last decision."""
    _known: list[PlantCounts] = field(default_factory=list)
    """Totals at each reading, by its position."""
    _delivered: int = 0
    _last: PlantCounts = field(default_factory=lambda: PlantCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    _most: int = 0
    _decisions: int = 0
    _reasons: dict[str, int] = field(default_factory=dict)
    _points: list[Point] = field(default_factory=list)
    _work_at_point: float = 0.0

    def run(self) -> Run:
        end, lead = self.workload.seconds, self.workload.lead
        interval = max(round(self.policy.interval), 1)
        now = decide_at = 0.0
        ready = self.pool.ready
        paid_before: float | None = None
        while now < end:
            self.pool.advance(now)
            if paid_before is None and now >= lead:
                paid_before = self.pool.seconds + self.plant.draining
            if self.prompt and self.pool.desired == 0 and (held := self.plant.counts().waiting) > 0:
                self._decide(now, held)
                self.pool.ask(max(self.pool.desired, 1))
            if now >= decide_at:
                if self._is_due(now) or self.pool.ready > ready:
                    self._decide(now)
                decide_at = now + interval
            elif self.prompt and self.pool.ready > ready:
                self._decide(now)
            ready = self.pool.ready
            if now >= lead:
                self._most = max(self._most, self.pool.alive)
            until = min(self._next(decide_at), end)
            if now < lead:
                until = min(until, lead)
            self.plant.advance(until, self.pool.ready)
            now = until
            if len(self._known) < len(self.readings.taken) and now >= self.readings.taken[len(self._known)]:
                self._known.append(self.plant.counts())
        self.pool.advance(end)
        return Run(
            waits=self.plant.waits(),
            replica_seconds=self.pool.seconds + self.plant.draining - (paid_before or 0.0),
            actions=tuple(self.pool.actions),
            most_alive=self._most,
            decisions=self._decisions,
            reasons=self._reasons,
            timeline=tuple(self._points),
        )

    def _next(self, decide_at: float) -> float:
        """Return the time of the next decision, reading, or end of a start."""
        at, step = decide_at, self.workload.step
        if len(self._known) < len(self.readings.taken):
            at = min(at, self.readings.taken[len(self._known)])
        if self.prompt and self.pool.desired == 0:
            at = min(at, self.plant.counts().time + step)
        return math.ceil(min(at, self.pool.next_change) / step) * step

    def _is_due(self, now: float) -> bool:
        """Return whether a decision is due: something but time may change it, or enough time has passed."""
        is_falling = self._reason == "KeepAlive" and self.pool.desired > 1
        if self._reason not in STEADY or is_falling or now - self._decided >= self.steady:
            return True
        counts = self.plant.counts()
        return counts.arrivals > self._last.arrivals or counts.busy + counts.waiting > 0

    def _decide(self, now: float, held: float = 0.0) -> None:
        """Let the policy decide; a report of held requests causes a decision between two readings."""
        load, gauges = self._new_readings(now)
        moment = self.workload.start + now
        if held:
            if load is None:
                load = Load(
                    moment - HELD_SECONDS, moment, arrivals=0, work=0, finished=0, in_flight=0, held=held
                )
            load = replace(load, held=max(load.held, held))
        observation = Observation(moment, _shifted(self.pool, self.workload.start), load, gauges)
        decision = self.policy.decide(observation)
        self.pool.ask(decision.replicas)
        self._reason, self._decided = decision.reason, now
        self._decisions += 1
        self._reasons[decision.reason] = self._reasons.get(decision.reason, 0) + 1
        if self.every and (not self._points or moment - self._points[-1].time >= self.every):
            self._point(moment, decision)

    def _new_readings(self, now: float) -> tuple[Load | None, dict[str, float]]:
        """Return the readings since the last decision that have arrived."""
        latest = self._delivered
        while latest < len(self._known) and self.readings.known[latest] <= now:
            latest += 1
        if latest == self._delivered:
            return None, {}
        arrived = self._known[self._delivered : latest]
        self._delivered = latest
        before, after = self._last, arrived[-1]
        self._last = after
        return _load(before, after, self.workload.start, _idle(before, arrived)), _gauges(before, after)

    def _point(self, moment: float, decision: Decision) -> None:
        counts = self.plant.counts()
        passed = moment - self._points[-1].time if self._points else 0.0
        rate = (counts.work - self._work_at_point) / passed if passed else 0.0
        self._work_at_point = counts.work
        self._points.append(Point(moment, rate, self.pool.ready, self.pool.alive, counts.waiting, decision))


def _shifted(pool: Pool, start: float) -> Replicas:
    seen = pool.observed()
    if not seen.starting:
        return seen
    return replace(seen, starting=tuple(start + created for created in seen.starting))


def _idle(before: PlantCounts, readings: Sequence[PlantCounts]) -> float:
    """Return the seconds from `before` to the last reading without a request so far."""
    idle = 0.0
    for counts in readings:
        if counts.arrivals > before.arrivals or before.busy + before.waiting > 0:
            break
        idle = counts.time - before.time
    return idle


def _load(before: PlantCounts, after: PlantCounts, start: float, idle: float) -> Load:
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
        latency=(after.waited - before.waited) / finished if finished > 0 else None,
        errors=after.dropped - before.dropped,
        idle=idle,
    )


def _gauges(before: PlantCounts, after: PlantCounts) -> dict[str, float]:
    """Return gauges; a target without ready replicas has no usage."""
    capacity = after.capacity - before.capacity
    if capacity <= 0 or after.ready == 0:
        return {}
    return {UTILISATION: (after.done - before.done) / capacity, WAITING: after.waiting}
