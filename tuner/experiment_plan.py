"""From the objects of an experiment to its plan: reads them, asks the search, plans. Pure.

It runs in a process of its own (`search_worker.py`): with scikit-learn behind it, it is too heavy for one that watches.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from serving import errors
from serving.objects import Object
from serving.resources.conditions import Condition
from serving.resources.experiment import (
    Constraint,
    ProfilingExperimentSpec,
    ProfilingExperimentStatus,
    Setting,
)
from tuner import trial_record
from tuner.observation import problem_of
from tuner.planning import experiment as planning
from tuner.planning.exchange import ExperimentPlan, PlanRequest, RecordedExperiment
from tuner.planning.snapshot import ExperimentSnapshot, Phase
from tuner.search.decision import Decision
from tuner.search.problem import Budget, Earlier, Floats, Observation, Problem
from tuner.settings import SearchSettings
from tuner.specs import prices, rendering
from tuner.specs.space import Space
from tuner.trial_record import TrialRecord

Price = Callable[[Space], Floats]
"""What each spec of a space costs here for an hour."""
_ASPECTS = {"TargetInvalid": planning.TARGET_READY, "AlgorithmMissing": planning.RECOMMENDED}
"""Which condition says why an experiment cannot go on, by the reason; others are of the space."""


class Decide(Protocol):
    """`tuner.search.decide.decide`, and whatever stands in its place."""

    def __call__(
        self,
        problem: Problem,
        observations: Sequence[Observation],
        pending: Sequence[int],
        budget: Budget,
        earlier: Sequence[Earlier],
        *,
        settings: SearchSettings,
        seed: int,
        algorithm: str,
    ) -> Decision:
        """Return what to do next."""


def make_plan(request: PlanRequest, now: dt.datetime, search: Decide) -> ExperimentPlan:
    """Return what to do next for an experiment."""
    try:
        return _make_plan(request, now, search)
    except errors.Temporary as error:
        phase: Phase = "Pending"
        condition = Condition(planning.TARGET_READY, "False", error.reason, str(error))
    except errors.Permanent as error:
        phase = "Failed"
        aspect = _ASPECTS.get(error.reason, planning.SPACE_VALID)
        condition = Condition(aspect, "False", error.reason, str(error))
    trials = [trial_record.parse(trial) for trial in request.recorded.trials]
    return planning.refused(request.recorded.experiment, trials, condition, phase, now)


def _make_plan(request: PlanRequest, now: dt.datetime, search: Decide) -> ExperimentPlan:
    """Return the plan.

    Raises:
        errors.Permanent: the experiment cannot go on; a spec of it cannot be rendered, say, whichever the search names.
        errors.Temporary: its target is not there yet.
    """
    asked = request.recorded.experiment
    spec = ProfilingExperimentSpec.model_validate(asked["spec"])
    space = Space.of(spec)
    source = _source(request, spec)
    version = _version(request, source)
    costs = rendering.costs(source, version, space, spec.prices)
    prices.check(spec, space, costs)
    world = ExperimentSnapshot(
        experiment=asked,
        spec=spec,
        status=ProfilingExperimentStatus.model_validate(asked.get("status") or {}),
        space=space,
        trials=_records(request.recorded, spec, space, version["status"]["digest"]),
        render=partial(_rendered, source, version, spec),
        settings=request.settings,
    )
    budget = planning.search_budget(world, now)
    if budget is None:
        return planning.plan(world, None, now)
    price = partial(_prices, source, version, spec)
    decision = search(
        problem_of(spec, space, costs),
        [trial.observation for trial in world.trials if trial.observation is not None],
        planning.pending(world, now),
        budget,
        _told(request.earlier, world, price),
        settings=request.settings.search,
        seed=spec.algorithm.seed,
        algorithm=spec.algorithm.algorithm_name,
    )
    return planning.plan(world, decision, now)


def _source(request: PlanRequest, spec: ProfilingExperimentSpec) -> rendering.Source:
    name = spec.target.inference
    if name is not None and request.inference is None:
        raise errors.Temporary("TargetNotFound", f"there is no Inference {name}")
    return rendering.source(spec.target, request.inference)


def _version(request: PlanRequest, source: rendering.Source) -> Object:
    name = source.predictor.model_version
    if name not in request.model_versions:
        raise errors.Temporary("TargetNotFound", f"there is no ModelVersion {name}")
    return request.model_versions[name]


def _rendered(
    source: rendering.Source, version: Object, spec: ProfilingExperimentSpec, settings: Sequence[Setting]
) -> rendering.Rendering:
    return rendering.pod(source, version, settings, spec.prices)


def _records(
    recorded: RecordedExperiment, spec: ProfilingExperimentSpec, space: Space, digest: str | None = None
) -> tuple[TrialRecord, ...]:
    """Return the trials by number; with a `digest`, those that measured another model are stale."""
    records = [
        trial_record.read(
            trial,
            space,
            spec.objective,
            spec.constraints,
            stale=digest is not None and trial["spec"].get("modelDigest") != digest,
        )
        for trial in recorded.trials
    ]
    return tuple(sorted(records, key=lambda record: record.spec.number))


def _prices(source: rendering.Source, version: Object, spec: ProfilingExperimentSpec, space: Space) -> Floats:
    """Return what each spec of another experiment's space costs here; zeros where one of them cannot be rendered here."""
    try:
        return rendering.costs(source, version, space, spec.prices)
    except errors.Permanent:
        return np.zeros(space.size)


def _told(recorded: Sequence[RecordedExperiment], world: ExperimentSnapshot, price: Price) -> list[Earlier]:
    found = [_earlier(one, world, price) for one in recorded]
    return [earlier for earlier in found if earlier is not None]


def _earlier(recorded: RecordedExperiment, world: ExperimentSnapshot, price: Price) -> Earlier | None:
    """Return an experiment as one to learn from, at today's prices; None where its axes are others, or it is no experiment any more."""
    spec = ProfilingExperimentSpec.model_validate(recorded.experiment["spec"])
    try:
        beside = Space.of(spec).beside(world.space)
    except errors.SpaceInvalid:
        return None
    if beside is None:
        return None
    shared = _shared(spec.constraints, world.spec.constraints)
    spec = spec.model_copy(update={"constraints": [spec.constraints[place] for place in shared.values()]})
    found = [known.observation for known in _records(recorded, spec, beside)]
    return Earlier(
        recorded.experiment["metadata"]["name"],
        problem_of(spec, beside, price(beside)),
        tuple(observation for observation in found if observation is not None),
        tuple(shared),
    )


def _shared(theirs: Sequence[Constraint], ours: Sequence[Constraint]) -> dict[int, int]:
    """Return for each constraint of ours which of theirs is of the same metric and percentile, where there is one."""
    places = {_constrained(one): place for place, one in enumerate(theirs)}
    return {k: places[_constrained(one)] for k, one in enumerate(ours) if _constrained(one) in places}


def _constrained(constraint: Constraint) -> tuple[str, int]:
    return constraint.metric, 0 if constraint.metric == "errorRate" else constraint.percentile
