"""Compares policies on one simulated service, and divides each run into the columns of a timeline. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate import ours
from autoscaler.simulate.baselines import BASELINES
from autoscaler.simulate.oracle import Oracle, ordered_ahead
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import PolicyInputs
from autoscaler.simulate.run import Run, run
from autoscaler.simulate.scores import Scores, scores
from autoscaler.simulate.startup import Startup, around, fleet
from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.workload import HEADROOM, Workload

OURS = "slipway"
"""Name of our policy."""
FLEET = "fleet"
"""Name of the law of start-up times of a production fleet; the name of another law is its seconds."""
COLUMNS = 720
"""Most columns of a timeline: about the width of a screen."""
COLUMN_SECONDS = 5
"""Least seconds of a column: the time between two decisions."""
DEFAULT = ("static", "hpa", "kpa", "keda", "aibrix", "wva", "seasonal naive", "last value")
"""The default baselines: one of each kind."""
RISKS = (0.1, 2.5)
"""Further risks of our policy, in percent, which show cost against violations: a fifth of the default, and
five times the default."""


def names() -> tuple[str, ...]:
    """Return the names of all policies, ours first."""
    return (OURS, *BASELINES)


def startup_of(name: str) -> Startup:
    """Return the law of start-up times with a name: `fleet`, or seconds.

    Raises:
        ValueError: the name is neither `fleet` nor a finite number of at least 0.
    """
    if name == FLEET:
        return fleet()
    seconds = float(name)
    if not 0 <= seconds < np.inf:
        raise ValueError(name)
    return around(seconds)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy and its parameters."""

    policy: str
    """Name of the policy, from `names()`."""
    risk: float | None = None
    """Risk of our policy in percent; None: the default, or another policy."""

    @property
    def name(self) -> str:
        return self.policy if self.risk is None else f"{self.policy} risk={self.risk:g}"

    def build(self) -> Callable[[PolicyInputs], Policy]:
        """Return the builder of the policy."""
        return ours.at(self.risk) if self.policy == OURS else BASELINES[self.policy]


@dataclass(frozen=True, slots=True)
class TimelineColumn:
    """One policy during one column of its timeline."""

    desired: int
    """Highest desired count."""
    ready: int
    """Lowest ready count."""
    late: float
    """Requests that arrived in the column and waited too long."""
    lower: float | None
    """Forecast work per second; None without a forecast."""
    median: float | None
    upper: float | None
    reason: str
    """Reason of the last decision that changed the count, else of the last decision."""
    message: str


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changed the count."""

    time: float
    """Unix seconds."""
    before: int
    """Desired replicas before the decision."""
    after: int
    """Desired replicas after the decision."""
    ready: int
    """Ready replicas at the decision."""
    rate: float
    """Work per second."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one contender."""

    name: str
    policy: str
    risk: float | None
    scores: Scores
    reasons: Mapping[str, int]
    """Decisions by reason."""
    columns: tuple[TimelineColumn, ...]
    changes: tuple[Change, ...]


def width(workload: Workload) -> int:
    """Return the seconds of a column."""
    return max(math.ceil(workload.seconds / COLUMNS), COLUMN_SECONDS)


def yardstick(workload: Workload, startup: Startup, max_replicas: int | None) -> tuple[Oracle, int]:
    """Return the cheapest known schedule with perfect knowledge, lean ones included, and `max_replicas`.

    Args:
        workload: load, replicas and objective.
        startup: law of start-up times; the oracle orders its typical time ahead.
        max_replicas: most replicas of a policy; None: `HEADROOM` times the peak of the first plain
            schedule, but at least `HEADROOM`.
    """
    schedules = workload.schedules(lean=True)
    paid = [(need, ordered_ahead(need, startup.typical)) for need in (*schedules.plain, *schedules.lean)]
    need, alive = min(paid, key=lambda candidate: float(candidate[1].sum()))
    oracle = Oracle(need, alive, least=alive)
    if max_replicas is not None:
        return oracle, max_replicas
    return oracle, max(HEADROOM * int(schedules.plain[0].max()), HEADROOM, workload.min_replicas)


def play(
    workload: Workload, startup: Startup, contender: Contender, *, oracle: Oracle, limit: int, seed: int
) -> Outcome:
    """Run one contender; the same seed gives every contender the same starts and readings.

    Args:
        workload: load, replicas and objective.
        startup: law of start-up times.
        contender: the policy.
        oracle: the schedule with perfect knowledge that the scores compare with.
        limit: most replicas that the policy may ask for.
        seed: of the random start-up times and delays of readings.
    """
    recorders: list[_Recorder] = []

    def build(inputs: PolicyInputs) -> Policy:
        recorders.append(_Recorder(contender.build()(inputs)))
        return recorders[0]

    played = run(workload, startup, build, seed=seed, limit=limit)
    return Outcome(
        name=contender.name,
        policy=contender.policy,
        risk=contender.risk,
        scores=scores(workload, played, oracle),
        reasons=played.reasons,
        columns=_columns(workload, played, recorders[0].decisions),
        changes=_changes(recorders[0].decisions),
    )


def load_of(workload: Workload) -> Floats:
    """Return the mean work per second of each column."""
    return _each(workload, workload.load.per_second(workload.seconds).work, np.add) / _lengths(workload)


def requests_of(workload: Workload) -> Floats:
    """Return the requests of each column."""
    return _each(workload, workload.load.per_second(workload.seconds).arrivals, np.add)


def need_of(workload: Workload, oracle: Oracle) -> Floats:
    """Return the highest needed count of each column."""
    return _each(workload, oracle.need[: workload.seconds], np.maximum)


class _Recorded(NamedTuple):
    """One decision of a run."""

    time: float
    """Unix seconds."""
    ready: int
    """Ready replicas at the decision."""
    decision: Decision


@dataclass(slots=True)
class _Recorder:
    """Wraps a policy and keeps its decisions."""

    policy: Policy
    decisions: list[_Recorded] = field(default_factory=list)

    @property
    def interval(self) -> float:
        return self.policy.interval

    def decide(self, observation: Observation) -> Decision:
        decision = self.policy.decide(observation)
        self.decisions.append(_Recorded(observation.now, observation.replicas.ready, decision))
        return decision


def _columns(workload: Workload, played: Run, decisions: list[_Recorded]) -> tuple[TimelineColumn, ...]:
    step = width(workload)
    count = math.ceil(workload.seconds / step)
    column_of_request = (played.waits.times // step).astype(np.int64)
    is_late = played.waits.seconds > workload.wait + 1e-6
    late = np.bincount(column_of_request, weights=played.waits.weights * is_late, minlength=count)
    columns: list[TimelineColumn] = []
    position, shown, last = 0, decisions[0], decisions[0]
    for index in range(count):
        end = workload.start + (index + 1) * step
        desired, ready = last.decision.replicas, last.ready
        is_changed = False
        while position < len(decisions) and decisions[position].time < end:
            current = decisions[position]
            position += 1
            desired, ready = max(desired, current.decision.replicas), min(ready, current.ready)
            if current.decision.replicas != last.decision.replicas:
                shown, is_changed = current, True
            elif not is_changed:
                shown = current
            last = current
        band = shown.decision.forecast
        columns.append(
            TimelineColumn(
                desired=desired,
                ready=ready,
                late=float(late[index]),
                lower=band.lower if band else None,
                median=band.median if band else None,
                upper=band.upper if band else None,
                reason=shown.decision.reason,
                message=shown.decision.message,
            )
        )
    return tuple(columns)


def _changes(decisions: list[_Recorded]) -> tuple[Change, ...]:
    return tuple(
        Change(
            time=current.time,
            before=last.decision.replicas,
            after=current.decision.replicas,
            ready=current.ready,
            rate=current.decision.rate,
            reason=current.decision.reason,
            message=current.decision.message,
        )
        for last, current in pairwise(decisions)
        if current.decision.replicas != last.decision.replicas
    )


def _each(workload: Workload, values: Floats, reduced: np.ufunc) -> Floats:
    """Reduce the values of each second, by `reduced`, to one value of each column."""
    reduction: Floats = reduced.reduceat(values, np.arange(0, workload.seconds, width(workload)))
    return reduction


def _lengths(workload: Workload) -> Floats:
    """Return the seconds of each column; the last one may be shorter."""
    starts = np.arange(0, workload.seconds, width(workload))
    lengths: Floats = np.diff([*starts, workload.seconds]).astype(np.float64)
    return lengths
