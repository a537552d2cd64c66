"""The evidence of a report: an experiment with its trials, and the pooled measurements of one spec.

The recommendation is in the experiment's status; nothing is judged here.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from serving.objects import Object
from serving.resources.tuning.experiment import Constraint, ProfilingExperimentSpec, Setting
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from serving.resources.tuning.trial import Estimate, Window
from tuner import intervals, trial_record
from tuner.constraints import bound_of, measured_value
from tuner.observation import BREAKS_CONSTRAINT
from tuner.report.schema import Bound, Check, Choice, Comparison
from tuner.settings import TunerSettings
from tuner.specs.space import Space
from tuner.trial_record import SpecKey, TrialRecord


@dataclass(frozen=True)
class Evidence:
    """An experiment with its trials, by number."""

    name: str
    namespace: str
    spec: ProfilingExperimentSpec
    status: ProfilingExperimentStatus
    space: Space
    rows: tuple[TrialRecord, ...]
    """Trials of the newest trial's model."""
    stale: tuple[TrialRecord, ...]
    """Trials of another model: no evidence about the newest trial's model."""
    settings: TunerSettings
    """The tuner's settings for the measurement of the trials."""

    @property
    def maximized(self) -> bool:
        """Whether more of the objective is better."""
        return self.spec.objective.type == "maximize"

    def specs(self) -> dict[SpecKey, list[TrialRecord]]:
        """Return the complete trials of each spec."""
        rows: dict[SpecKey, list[TrialRecord]] = defaultdict(list)
        for row in self.rows:
            if row.is_complete:
                rows[row.key].append(row)
        return dict(rows)

    def score(self, value: float) -> float:
        """Return a positive score of an objective; more is better."""
        return value if self.maximized else 1 / value if value > 0 else math.inf


def read(experiment: Object, trials: Sequence[Object], settings: TunerSettings) -> Evidence:
    """Return an experiment's objects as evidence.

    Raises:
        SpaceInvalid: the experiment describes no space.
        pydantic.ValidationError: an object is not of its kind.
    """
    spec = ProfilingExperimentSpec.model_validate(experiment["spec"])
    space = Space.of(spec)
    by_number = sorted(trials, key=lambda trial: int(trial["spec"]["number"]))
    digest = by_number[-1]["spec"].get("modelDigest") if by_number else None
    current = [trial for trial in by_number if trial["spec"].get("modelDigest") == digest]
    stale = [trial for trial in by_number if trial["spec"].get("modelDigest") != digest]
    return Evidence(
        name=experiment["metadata"]["name"],
        namespace=experiment["metadata"]["namespace"],
        spec=spec,
        status=ProfilingExperimentStatus.model_validate(experiment.get("status") or {}),
        space=space,
        rows=tuple(trial_record.read(trial, space, spec.objective, spec.constraints) for trial in current),
        stale=tuple(
            trial_record.read(trial, space, spec.objective, spec.constraints, stale=True) for trial in stale
        ),
        settings=settings,
    )


def bound(constraint: Constraint) -> Bound:
    """Return a constraint with its bound as a number, in seconds or as a share."""
    return Bound(metric=constraint.metric, percentile=constraint.percentile, bound=bound_of(constraint))


def choice(evidence: Evidence, rows: Sequence[TrialRecord]) -> Choice:
    """Return a spec with the pooled measurements of `rows`, which are trials of it, at least one.

    Constraint values are pooled over all trials of the spec, including those that broke a constraint at their
    lowest load. Those that were stopped because they could not beat the best count only if there are no
    others.
    """
    last = rows[-1]
    results = [row.status.result for row in rows if row.status.result is not None]
    objectives = [row.objective for row in rows if row.objective is not None]
    names = [row.name for row in rows]
    repeatability = evidence.status.repeatability
    decided = [row for row in evidence.rows if row.key == last.key and row.is_decided]
    return Choice(
        spec=last.index,
        settings=last.spec.settings,
        trials=names,
        objective=intervals.pooled(objectives, repeatability) if objectives else None,
        cost_per_hour=last.spec.cost_per_hour if last.spec.cost_per_hour > 0 else None,
        throughput=(
            intervals.pooled([result.throughput for result in results], repeatability) if results else None
        ),
        checks=checks(evidence, [row.status.result for row in decided if row.status.result] or results),
        broken=[
            row.name for row in decided if row.status.reason == BREAKS_CONSTRAINT and row.name not in names
        ],
        latencies=results[-1].latencies if results else [],
        cpu_cores=results[-1].usage.cpu_cores if results else 0,
        memory_bytes=max((result.usage.memory_bytes for result in results), default=0),
    )


def checks(evidence: Evidence, results: Sequence[Window]) -> list[Check]:
    """Return the pooled value of each constraint that has a value in every result."""
    pooled: list[Check] = []
    for i, constraint in enumerate(evidence.spec.constraints):
        values = [
            value
            for result in results
            if (value := measured_value(result, constraint.metric, constraint.percentile)) is not None
        ]
        if values and len(values) == len(results):
            # Without the repeatability, which is of the objective.
            pooled.append(
                Check(constraint=i, measured=intervals.pooled(values), bound=bound(constraint).bound)
            )
    return pooled


def allowed(evidence: Evidence, spec: Choice) -> bool:
    """Return whether a spec meets every constraint; a constraint without a value is not met."""
    within = [check for check in spec.checks if check.measured.value <= check.bound]
    return len(within) == len(evidence.spec.constraints)


def compared(evidence: Evidence, ours: Choice, theirs: Choice) -> Comparison | None:
    """Return the factor by which `ours` is better than `theirs`; None unless both objectives are positive."""
    if (
        ours.objective is None
        or theirs.objective is None
        or min(ours.objective.value, theirs.objective.value) <= 0
    ):
        return None
    log_ratio = math.log(evidence.score(ours.objective.value) / evidence.score(theirs.objective.value))
    half_width = math.hypot(intervals.half_width(ours.objective), intervals.half_width(theirs.objective))
    factor = Estimate(
        value=math.exp(log_ratio),
        low=math.exp(log_ratio - half_width),
        high=math.exp(log_ratio + half_width),
    )
    our_cost, their_cost = ours.cost_per_hour, theirs.cost_per_hour
    return Comparison(
        factor=factor,
        verdict="Better" if factor.low > 1 else "Worse" if factor.high < 1 else "Unclear",
        cost_per_hour=None if our_cost is None or their_cost is None else our_cost - their_cost,
    )


def same(settings: Sequence[Setting], others: Sequence[Setting]) -> bool:
    """Return whether two specs have the same settings in any order."""
    return sorted(settings, key=str) == sorted(others, key=str)
