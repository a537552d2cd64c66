"""An experiment's objects as the report reads them: every trial with its objective, and what several of one spec say together.

It judges nothing: which spec is recommended stands in the experiment's status.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from serving.errors import SpaceInvalid
from serving.objects import Object
from serving.resources.experiment import (
    Constraint,
    ProfilingExperimentSpec,
    ProfilingExperimentStatus,
    Setting,
)
from serving.resources.trial import Estimate, TrialSpec, TrialStatus, Window
from tuner import intervals
from tuner.constraints import bound_of, measured_value
from tuner.objective import objective_value
from tuner.report.asked import Bound
from tuner.report.schema import Check, Choice, Comparison, Meets
from tuner.settings import TunerSettings
from tuner.specs.space import Space

Key = int | tuple[tuple[str, str, str], ...]
"""A spec: its row in the space, or its settings where it lies outside of it."""
FULL = "Measured"
"""The reason of a trial that was measured to its end: only such ones are compared."""
BROKE = "BreaksConstraint"
"""The reason of one that no load was within the constraints of: its objective is of no use, and what it saw of the constraints counts."""


@dataclass(frozen=True)
class Row:
    """One trial."""

    name: str
    spec: TrialSpec
    status: TrialStatus
    index: int | None
    objective: Estimate | None
    """In natural units, at the load of the result; None where there is no result."""

    @property
    def key(self) -> Key:
        """What tells its spec from others."""
        if self.index is not None:
            return self.index
        return tuple(sorted((s.category, s.name, s.value) for s in self.spec.settings))

    @property
    def complete(self) -> bool:
        """Whether it was measured to its end, and so can be compared."""
        return self.status.reason == FULL and self.objective is not None

    @property
    def decided(self) -> bool:
        """Whether it was found out whether it meets the constraints."""
        return self.status.reason in (FULL, BROKE) and self.status.result is not None

    @property
    def meets(self) -> Meets:
        """Whether it met the constraints."""
        return self.status.result.meets if self.status.result is not None else ""


@dataclass(frozen=True)
class Evidence:
    """An experiment with its trials, by number."""

    name: str
    namespace: str
    spec: ProfilingExperimentSpec
    status: ProfilingExperimentStatus
    space: Space
    rows: tuple[Row, ...]
    objects: tuple[Object, ...]
    """The trials as they are stored, in the same order."""
    stale: tuple[Row, ...]
    """Trials of another model than that of the newest one: they say nothing of this one."""
    settings: TunerSettings
    """Those that the trials were measured with."""

    @property
    def maximized(self) -> bool:
        """Whether more of the objective is better."""
        return self.spec.objective.type == "maximize"

    def specs(self) -> dict[Key, list[Row]]:
        """Return the complete trials of each spec."""
        found: dict[Key, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.complete:
                found[row.key].append(row)
        return dict(found)

    def score(self, value: float) -> float:
        """Return a positive number of which more is better."""
        return value if self.maximized else 1 / value if value > 0 else math.inf


def read(experiment: Object, trials: Sequence[Object], settings: TunerSettings) -> Evidence:
    """Return an experiment's objects as evidence.

    Raises:
        SpaceInvalid: the experiment describes no space.
        pydantic.ValidationError: an object is not of its kind.
    """
    spec = ProfilingExperimentSpec.model_validate(experiment["spec"])
    space = Space.of(spec)
    every = sorted(trials, key=lambda trial: int(trial["spec"]["number"]))
    digest = every[-1]["spec"].get("modelDigest") if every else None
    ordered = [trial for trial in every if trial["spec"].get("modelDigest") == digest]
    others = [trial for trial in every if trial["spec"].get("modelDigest") != digest]
    return Evidence(
        name=experiment["metadata"]["name"],
        namespace=experiment["metadata"]["namespace"],
        spec=spec,
        status=ProfilingExperimentStatus.model_validate(experiment.get("status") or {}),
        space=space,
        rows=tuple(_row(trial, spec, space) for trial in ordered),
        objects=tuple(ordered),
        stale=tuple(replace(_row(trial, spec, space), objective=None) for trial in others),
        settings=settings,
    )


def _row(trial: Object, spec: ProfilingExperimentSpec, space: Space) -> Row:
    said = TrialSpec.model_validate(trial["spec"])
    status = TrialStatus.model_validate(trial.get("status") or {})
    try:
        index: int | None = space.index(said.settings)
    except SpaceInvalid:
        index = None  # what runs today may lie beside the space
    objective = None
    if status.result is not None:
        objective = objective_value(spec.objective, status.result, said.cost_per_hour, said.batch)
    return Row(trial["metadata"]["name"], said, status, index, objective)


def bound(constraint: Constraint) -> Bound:
    """Return a constraint with its bound as a number: seconds, or a share."""
    return Bound(metric=constraint.metric, percentile=constraint.percentile, bound=bound_of(constraint))


def choice(evidence: Evidence, rows: Sequence[Row]) -> Choice:
    """Return one spec with all that these trials of it measured, the last of which says what it was seen to use.

    Of the constraints counts what every trial of it saw that was not stopped as too slow: also one that broke them at every load.
    """
    last = rows[-1]
    results = [row.status.result for row in rows if row.status.result is not None]
    objectives = [row.objective for row in rows if row.objective is not None]
    names = [row.name for row in rows]
    spread = evidence.status.repeatability
    decided = [row for row in evidence.rows if row.key == last.key and row.decided]
    return Choice(
        spec=last.index,
        settings=last.spec.settings,
        trials=names,
        objective=intervals.pooled(objectives, spread) if objectives else None,
        cost_per_hour=last.spec.cost_per_hour if last.spec.cost_per_hour > 0 else None,
        throughput=intervals.pooled([result.throughput for result in results], spread) if results else None,
        checks=checks(evidence, [row.status.result for row in decided if row.status.result] or results),
        broken=[row.name for row in decided if row.status.reason == BROKE and row.name not in names],
        latencies=results[-1].latencies if results else [],
        cpu_cores=results[-1].usage.cpu_cores if results else 0,
        memory_bytes=max((result.usage.memory_bytes for result in results), default=0),
    )


def checks(evidence: Evidence, results: Sequence[Window]) -> list[Check]:
    """Return what was measured of each constraint that every one of these results has a number for."""
    found: list[Check] = []
    for i, constraint in enumerate(evidence.spec.constraints):
        values = [
            value
            for result in results
            if (value := measured_value(result, constraint.metric, constraint.percentile)) is not None
        ]
        if values and len(values) == len(results):
            found.append(
                Check(constraint=i, measured=intervals.pooled(values), bound=bound(constraint).bound)
            )
    return found


def allowed(evidence: Evidence, found: Choice) -> bool:
    """Return whether what was measured of a spec is within every constraint; one that was not seen is not met."""
    within = [check for check in found.checks if check.measured.value <= check.bound]
    return len(within) == len(evidence.spec.constraints)


def compared(evidence: Evidence, ours: Choice, theirs: Choice) -> Comparison | None:
    """Return how many times better the first is, with an interval; None where either has no objective."""
    if (
        ours.objective is None
        or theirs.objective is None
        or min(ours.objective.value, theirs.objective.value) <= 0
    ):
        return None
    ratio = math.log(evidence.score(ours.objective.value) / evidence.score(theirs.objective.value))
    spread = math.hypot(intervals.half_width(ours.objective), intervals.half_width(theirs.objective))
    costs = (ours.cost_per_hour, theirs.cost_per_hour)
    factor = Estimate(value=math.exp(ratio), low=math.exp(ratio - spread), high=math.exp(ratio + spread))
    return Comparison(
        factor=factor,
        verdict="Better" if factor.low > 1 else "Worse" if factor.high < 1 else "Unclear",
        cost_per_hour=None if costs[0] is None or costs[1] is None else costs[0] - costs[1],
    )


def same(settings: Sequence[Setting], others: Sequence[Setting]) -> bool:
    """Return whether two specs have the same settings, in whatever order."""
    return sorted(settings, key=str) == sorted(others, key=str)
