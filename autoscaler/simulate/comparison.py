"""Compares policies on one service, and puts each run into columns for a page. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoscaler.decision import Decision
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
FLEET = "fleet"
"""Name of the start-up times of a production fleet; other laws are named by their seconds."""
COLUMNS = 720
"""Most columns of a timeline: about the width of a screen."""
COLUMN_SECONDS = 5
"""Least seconds of a column: the time between two decisions."""
DEFAULT = ("static", "hpa", "kpa", "keda", "aibrix", "wva", "seasonal naive", "last value")
"""The default baselines: one of each kind."""
RISKS = (0.1, 2.5)
"""Other risks in percent of our policy, for cost against violations: a fifth and five times the default."""


def names() -> tuple[str, ...]:
    """Return the names of all policies, ours first."""
    return (OURS, *BASELINES)


def startup_of(name: str) -> Startup:
    """Return the start-up law of a name: `fleet`, or seconds.

    Raises:
        ValueError: another name.
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
    risk: float | None = None
    """Risk of our policy in percent; None: the default."""

    @property
    def name(self) -> str:
        return self.policy if self.risk is None else f"{self.policy} risk={self.risk:g}"

    def build(self) -> Callable[[PolicyInputs], Policy]:
        """Return the builder of the policy."""
        return ours.at(self.risk) if self.policy == OURS else BASELINES[self.policy]


@dataclass(frozen=True, slots=True)
class Column:
    """One policy during one column."""

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
    after: int
    ready: int
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
    columns: tuple[Column, ...]
    changes: tuple[Change, ...]


def width(workload: Workload) -> int:
    """Return the seconds of a column."""
    return max(-(-workload.seconds // COLUMNS), COLUMN_SECONDS)


def yardstick(workload: Workload, startup: Startup, max_replicas: int | None) -> tuple[Oracle, int]:
    """Return the cheapest known schedule with perfect knowledge, and its highest count.

    Args:
        workload: load, replicas and objective.
        startup: law whose typical time is the lead of orders.
        max_replicas: None: as many as there is room for.
    """
    schedules = workload.schedules(lean=True)
    paid = [(need, ordered_ahead(need, startup.typical)) for need in (*schedules.plain, *schedules.lean)]
    need, alive = min(paid, key=lambda pair: float(pair[1].sum()))
    room = max(HEADROOM * int(schedules.plain[0].max()), HEADROOM, workload.min_replicas)
    return Oracle(need, alive, alive), room if max_replicas is None else max_replicas


def play(
    workload: Workload, startup: Startup, contender: Contender, *, oracle: Oracle, limit: int, seed: int
) -> Outcome:
    """Run one contender; the same seed gives all the same starts and readings."""
    noted: list[_Noted] = []

    def build(terms: PolicyInputs) -> Policy:
        noted.append(_Noted(contender.build()(terms)))
        return noted[0]

    played = run(workload, startup, build, seed=seed, limit=limit)
    return Outcome(
        name=contender.name,
        policy=contender.policy,
        risk=contender.risk,
        scores=scores(workload, played, oracle),
        reasons=played.reasons,
        columns=_columns(workload, played, noted[0].seen),
        changes=_changes(noted[0].seen),
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


@dataclass(slots=True)
class _Noted:
    """Wraps a policy and keeps its decisions."""

    policy: Policy
    seen: list[tuple[float, int, Decision]] = field(default_factory=list)
    """Unix seconds, ready replicas, decision."""

    @property
    def interval(self) -> float:
        return self.policy.interval

    def decide(self, observation: Observation) -> Decision:
        decision = self.policy.decide(observation)
        self.seen.append((observation.now, observation.replicas.ready, decision))
        return decision


def _columns(workload: Workload, played: Run, seen: list[tuple[float, int, Decision]]) -> tuple[Column, ...]:
    step = width(workload)
    count = -(-workload.seconds // step)
    at = (played.waits.times // step).astype(np.int64)
    is_late = played.waits.waits > workload.wait + 1e-6
    late = np.bincount(at, weights=played.waits.weights * is_late, minlength=count)
    columns: list[Column] = []
    position, shown, last = 0, seen[0], seen[0]
    for index in range(count):
        desired, ready = last[2].replicas, last[1]
        is_changed = False
        while position < len(seen) and seen[position][0] < workload.start + (index + 1) * step:
            entry = seen[position]
            position += 1
            desired, ready = max(desired, entry[2].replicas), min(ready, entry[1])
            if entry[2].replicas != last[2].replicas:
                shown, is_changed = entry, True
            elif not is_changed:
                shown = entry
            last = entry
        band = shown[2].forecast
        columns.append(
            Column(
                desired=desired,
                ready=ready,
                late=float(late[index]),
                lower=band.lower if band else None,
                median=band.median if band else None,
                upper=band.upper if band else None,
                reason=shown[2].reason,
                message=shown[2].message,
            )
        )
    return tuple(columns)


def _changes(seen: list[tuple[float, int, Decision]]) -> tuple[Change, ...]:
    before, changes = seen[0][2].replicas, []
    for time, ready, decision in seen[1:]:
        if decision.replicas != before:
            changes.append(
                Change(
                    time, before, decision.replicas, ready, decision.rate, decision.reason, decision.message
                )
            )
            before = decision.replicas
    return tuple(changes)


def _each(workload: Workload, values: Floats, reduced: np.ufunc) -> Floats:
    reduction: Floats = reduced.reduceat(values, np.arange(0, workload.seconds, width(workload)))
    return reduction


def _lengths(workload: Workload) -> Floats:
    starts = np.arange(0, workload.seconds, width(workload))
    lengths: Floats = np.diff([*starts, workload.seconds]).astype(np.float64)
    return lengths
