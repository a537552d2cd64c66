"""Makes the plan of an experiment from its objects: reads them, runs the search, plans. Pure.

It runs in the search worker beside the search, whose scikit-learn is too heavy for the controllers' process.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from serving import errors
from serving.objects import Object
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.gpu import pod as gpu_pod
from serving.planning.gpu.share import Mechanism
from serving.resources.kubernetes.conditions import Condition
from serving.resources.tuning.experiment import Constraint, ProfilingExperimentSpec, Setting
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from tuner import trial_record
from tuner.observation import problem_of
from tuner.planning import experiment as planning
from tuner.planning.exchange import ExperimentPlan, PlanRequest, RecordedExperiment
from tuner.planning.snapshot import ExperimentSnapshot, Phase
from tuner.search.decision_values import Decision
from tuner.search.problem import Budget, Earlier, Floats, Problem, TrialObservation
from tuner.settings import SearchSettings
from tuner.specs import prices, rendering
from tuner.specs.space import Space, flag
from tuner.trial_record import TrialRecord

Price = Callable[[Space], Floats]
"""Returns the (n,) hourly costs of the n specs of a space, with this experiment's target and prices."""
_CONDITION_TYPES = {"TargetInvalid": planning.TARGET_READY, "AlgorithmMissing": planning.RECOMMENDED}
"""Type of the condition that reports an error, by the error's reason; SpaceValid for any other reason."""


class Decide(Protocol):
    """`tuner.search.next_decision.decide`, or its replacement in a test."""

    def __call__(
        self,
        problem: Problem,
        observations: Sequence[TrialObservation],
        pending: Sequence[int],
        budget: Budget,
        earlier: Sequence[Earlier],
        *,
        settings: SearchSettings,
        seed: int,
        algorithm: str,
    ) -> Decision:
        """Return the next decision."""


def make_plan(request: PlanRequest, now: dt.datetime, search: Decide) -> ExperimentPlan:
    """Return the next step of an experiment; `search` is `tuner.search.next_decision.decide`.

    An error of the experiment is part of the plan: a condition, and the phase Pending, or Failed once its
    trials have ended.
    """
    try:
        return _make_plan(request, now, search)
    except errors.Temporary as error:
        phase: Phase = "Pending"
        condition = Condition(planning.TARGET_READY, "False", error.reason, str(error))
    except errors.Permanent as error:
        phase = "Failed"
        type_ = _CONDITION_TYPES.get(error.reason, planning.SPACE_VALID)
        condition = Condition(type_, "False", error.reason, str(error))
    trials = [trial_record.parse(trial) for trial in request.recorded.trials]
    return planning.refused(request.recorded.experiment, trials, condition, phase, now)


def _make_plan(request: PlanRequest, now: dt.datetime, search: Decide) -> ExperimentPlan:
    """Return the plan.

    Raises:
        errors.Permanent: the experiment cannot continue, for example if one of its specs cannot be rendered.
        errors.Temporary: its target does not exist yet.
    """
    experiment = request.recorded.experiment
    spec = ProfilingExperimentSpec.model_validate(experiment["spec"])
    space = Space.of(spec)
    tuned_target = _tuned_target(request, spec)
    version = _version(request, tuned_target)
    tuned_target = replace(tuned_target, mechanism=_mechanism(request, tuned_target, space))
    costs = rendering.costs(tuned_target, version, space, spec.prices)  # raises if it has no digest
    prices.check(spec, space, costs)
    snapshot = ExperimentSnapshot(
        experiment=experiment,
        experiment_spec=spec,
        status=ProfilingExperimentStatus.model_validate(experiment.get("status") or {}),
        space=space,
        trials=_records(request.recorded, spec, space, digest=version["status"]["digest"]),
        render=partial(_rendered, tuned_target, version, spec),
        tuner_settings=request.settings,
        space_note=_unlisted_arguments(tuned_target, spec),
    )
    budget = planning.search_budget(snapshot, now)
    if budget is None:  # the next step needs no search
        return planning.plan(snapshot, None, now)
    price = partial(_prices, tuned_target, version, spec)
    decision = search(
        problem_of(spec, space, costs),
        [trial.observation for trial in snapshot.trials if trial.observation is not None],
        planning.pending(snapshot, now),
        budget,
        _earlier_experiments(request.earlier, snapshot, price),
        settings=request.settings.search,
        seed=spec.algorithm.seed,
        algorithm=spec.algorithm.algorithm_name,
    )
    return planning.plan(snapshot, decision, now)


def _tuned_target(request: PlanRequest, spec: ProfilingExperimentSpec) -> rendering.TunedTarget:
    name = spec.target.inference
    if name is not None and request.inference is None:
        raise errors.Temporary("TargetNotFound", f"there is no Inference {name}")
    target = rendering.tuned_target(spec.target, request.inference, request.engines, request.runtime_images)
    return replace(target, volume=request.volume)


def _unlisted_arguments(target: rendering.TunedTarget, spec: ProfilingExperimentSpec) -> str:
    """Return a sentence about tuned arguments that the manifest of the target's engine does not list as
    tunable, as an engine ends at once with an argument that it does not know; empty without one.
    """
    if target.engine is None or not target.engine.tunables:
        return ""
    tuned = [
        flag(parameter.name)
        for group in spec.tunable_parameters
        if group.category == "args"
        for parameter in group.parameters
    ]
    # Engines in Python take `--max_num_seqs` too.
    listed = {argument.replace("_", "-") for argument in target.engine.tunables}
    unlisted = [argument for argument in tuned if argument.replace("_", "-") not in listed]
    if not unlisted:
        return ""
    tunables = ", ".join(target.engine.tunables)
    return f"args: {', '.join(unlisted)}: not among the tunables of {target.framework}, which are {tunables}"


def _mechanism(request: PlanRequest, target: rendering.TunedTarget, space: Space) -> Mechanism:
    """Return the GPU mechanism of the first Trial whose replica has started; before there is one, the first
    that nodes offer for a spec of the space, and where none is offered, that of a new revision.
    """
    for trial in request.recorded.trials:
        share = gpu_pod.annotated(trial["spec"]["template"])
        if share and (trial.get("status") or {}).get("startSeconds"):
            recorded: Mechanism = share["mechanism"]
            return recorded
    choices = [
        mechanisms.choose(rendering.tuned(target, settings), request.cluster)
        for settings in _gpu_settings(space)
    ]
    known = [choice for choice in choices if choice is not None]
    choice = next((choice for choice in known if choice.is_offered), known[0] if known else None)
    return "mps" if choice is None else choice.mechanism


def _gpu_settings(space: Space) -> Iterable[tuple[Setting, ...]]:
    """Return the settings of one spec for each share of a GPU in the space."""
    by_share: dict[tuple[tuple[str, str], ...], tuple[Setting, ...]] = {}
    for index in range(space.size):
        settings = space.settings(index)
        share = tuple(
            (setting.name, setting.value)
            for setting in settings
            if setting.category == "resource" and setting.name.startswith("gpu.")
        )
        by_share.setdefault(share, settings)
        if not share:
            break  # no spec tunes the share
    return by_share.values()


def _version(request: PlanRequest, tuned_target: rendering.TunedTarget) -> Object:
    name = tuned_target.predictor.model_version
    if name not in request.model_versions:
        raise errors.Temporary("TargetNotFound", f"there is no ModelVersion {name}")
    return request.model_versions[name]


def _rendered(
    tuned_target: rendering.TunedTarget,
    version: Object,
    spec: ProfilingExperimentSpec,
    settings: Sequence[Setting],
) -> rendering.Rendering:
    return rendering.pod(tuned_target, version, settings, spec.prices)


def _records(
    recorded: RecordedExperiment,
    spec: ProfilingExperimentSpec,
    space: Space,
    *,
    digest: str | None = None,
    costs: Floats | None = None,
) -> tuple[TrialRecord, ...]:
    """Return the trials in the order of their numbers.

    Args:
        recorded: the experiment and its trials.
        spec: of the experiment, whose objective and constraints the observations have.
        space: of the spec.
        digest: of the model; trials that measured another model are stale. None: no trial is stale.
        costs: (n,) hourly costs of the space's n specs; None: each trial has the cost of its own time.
    """
    records = [
        trial_record.read(
            trial,
            space,
            spec.objective,
            spec.constraints,
            stale=digest is not None and trial["spec"].get("modelDigest") != digest,
            costs=costs,
        )
        for trial in recorded.trials
    ]
    return tuple(sorted(records, key=lambda record: record.spec.number))


def _prices(
    tuned_target: rendering.TunedTarget, version: Object, spec: ProfilingExperimentSpec, space: Space
) -> Floats:
    """Return the (n,) hourly costs of another experiment's specs; zeros if a spec cannot be rendered."""
    try:
        return rendering.costs(tuned_target, version, space, spec.prices)
    except errors.Permanent:
        return np.zeros(space.size)


def _earlier_experiments(
    recorded: Sequence[RecordedExperiment], snapshot: ExperimentSnapshot, price: Price
) -> list[Earlier]:
    earlier = [_earlier(experiment, snapshot, price) for experiment in recorded]
    return [experiment for experiment in earlier if experiment is not None]


def _earlier(recorded: RecordedExperiment, snapshot: ExperimentSnapshot, price: Price) -> Earlier | None:
    """Return an earlier experiment at today's prices; None if its axes differ or its space is invalid."""
    spec = ProfilingExperimentSpec.model_validate(recorded.experiment["spec"])
    try:
        space = Space.of(spec).aligned_with(snapshot.space)
    except errors.SpaceInvalid:
        return None
    if space is None:
        return None
    shared = _shared_constraints(spec.constraints, snapshot.experiment_spec.constraints)
    spec = spec.model_copy(update={"constraints": [spec.constraints[index] for index in shared.values()]})
    costs = price(space)
    are_priced = bool((costs > 0).all())  # without today's prices, each trial has the cost of its own time
    records = _records(recorded, spec, space, costs=costs if are_priced else None)
    observations = [record.observation for record in records]
    return Earlier(
        name=recorded.experiment["metadata"]["name"],
        problem=problem_of(spec, space, costs),
        observations=tuple(observation for observation in observations if observation is not None),
        constraints=tuple(shared),
    )


def _shared_constraints(earlier: Sequence[Constraint], current: Sequence[Constraint]) -> dict[int, int]:
    """Return the constraints on a measure of both experiments, whose bounds may differ.

    Each is its index in `current`, mapped to its index in `earlier`.
    """
    earlier_index = {_measure(constraint): index for index, constraint in enumerate(earlier)}
    return {
        index: earlier_index[_measure(constraint)]
        for index, constraint in enumerate(current)
        if _measure(constraint) in earlier_index
    }


def _measure(constraint: Constraint) -> tuple[str, int]:
    """Return the metric and percentile of a constraint; an error rate has no percentile."""
    return constraint.metric, 0 if constraint.metric == "errorRate" else constraint.percentile
