"""Trials and CapacityProfiles as API objects.

Their names follow from the experiment and the trial alone, so that a repeated write creates no second object.
"""

from serving.objects import Object
from serving.planning.inference.revision import NAME_LIMIT, hash8
from serving.resources import kinds, names
from serving.resources.kubernetes import owner_references
from serving.resources.tuning.capacity_profile import CapacityPoint, CapacityProfileSpec
from serving.resources.tuning.trial import TrialSpec, Window
from tuner.load.level_search import results
from tuner.planning import best, budget
from tuner.planning.budget import PlannedTrial
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision_values import Decision
from tuner.specs import prices
from tuner.trial_record import TrialRecord


def trial_name(experiment: str, number: int) -> str:
    """Return `<experiment>-<number>` in at most 63 characters; a long name is cut and hashed."""
    return _fitting(experiment, str(number))


def _fitting(stem: str, tail: str) -> str:
    """Return `<stem>-<tail>` in at most NAME_LIMIT characters."""
    room = NAME_LIMIT - len(f"-{tail}")
    if len(stem) > room:
        digest = f"-{hash8(stem)}"
        stem = stem[: room - len(digest)].rstrip("-") + digest
    return f"{stem}-{tail}"


def next_number(snapshot: ExperimentSnapshot) -> int:
    """Return the number of the next Trial."""
    return max((trial.spec.number for trial in snapshot.trials), default=0) + 1


def trial(
    snapshot: ExperimentSnapshot, number: int, planned: PlannedTrial, decision: Decision | None = None
) -> Object:
    """Return the Trial object; one to Explore is stopped early if it cannot beat the decision's best spec."""
    meta = snapshot.experiment["metadata"]
    return {
        "apiVersion": kinds.TRIAL.api_version,
        "kind": kinds.TRIAL.kind,
        "metadata": {
            "name": trial_name(snapshot.name, number),
            "namespace": meta["namespace"],
            "labels": {names.EXPERIMENT_LABEL: snapshot.name, names.MANAGED_BY_LABEL: "slipway"},
            "ownerReferences": [
                owner_references.controller_reference(kinds.PROFILING_EXPERIMENT, snapshot.experiment)
            ],
        },
        "spec": _spec(snapshot, number, planned, decision).model_dump(by_alias=True, exclude_none=True),
    }


def _spec(
    snapshot: ExperimentSnapshot, number: int, planned: PlannedTrial, decision: Decision | None
) -> TrialSpec:
    rendered = snapshot.render(planned.settings)
    settings, cost = planned.settings, rendered.cost_per_hour
    if planned.purpose == "Baseline":
        settings = budget.todays_settings(snapshot)
        tuned = [axis.name for axis in snapshot.space.axes if axis.category == "resource"]
        if prices.unlimited(rendered.template["spec"]["containers"], tuned):
            cost = 0.0  # unknown: a container without limits has no price
    to_beat = None
    if planned.purpose == "Explore" and decision is not None:
        to_beat = best.to_beat(snapshot, decision, rendered)
    objective = snapshot.experiment_spec.objective
    return TrialSpec(
        experiment=snapshot.name,
        number=number,
        purpose=planned.purpose,
        settings=list(settings),
        template=rendered.template,
        model_name=rendered.model_name,
        model_version=rendered.model_version,
        model_digest=rendered.model_digest,
        cost_per_hour=cost,
        batch=rendered.batch,
        load=snapshot.experiment_spec.load,
        constraints=list(snapshot.experiment_spec.constraints),
        objective_percentile=(objective.percentile if objective.objective_metric_name == "latency" else None),
        progress_deadline=snapshot.experiment_spec.service_progress_deadline,
        # Another seed for each trial: repeated measurements are independent.
        seed=(snapshot.experiment_spec.algorithm.seed + number) % 2**31,
        stop_below_throughput=None if to_beat is None else f"{to_beat:.6f}",
    )


def profile(snapshot: ExperimentSnapshot, measured: TrialRecord) -> Object | None:
    """Return the CapacityProfile of a measured spec; None if no window of it was recorded.

    It has no owner: the autoscaler reads it long after the experiment was deleted.
    """
    status, spec = measured.status, measured.spec
    if not status.windows:
        return None
    state = results.state_of(spec.load, spec.constraints, status.windows, snapshot.tuner_settings.load)
    windows = {window.level: window for window in results.curve(state)}
    if status.result is not None:
        # The curve is computed anew, from stored windows: at its level the reported result counts.
        windows[status.result.level] = status.result
    body = CapacityProfileSpec(
        model_digest=spec.model_digest,
        model_version=spec.model_version,
        machine=status.machine,
        settings=list(spec.settings),
        mode=spec.load.mode,
        batch=spec.batch,
        points=[_point(windows[level]) for level in sorted(windows)],
        capacity=measured.throughput or 0,
        measured_at=status.completion_time,
        trial=measured.name,
        experiment=snapshot.name,
    )
    meta = snapshot.experiment["metadata"]
    # The uid is in the name, as the profile of a deleted experiment with the same name is kept.
    return {
        "apiVersion": kinds.CAPACITY_PROFILE.api_version,
        "kind": kinds.CAPACITY_PROFILE.kind,
        "metadata": {
            "name": _fitting(snapshot.name, hash8([meta["uid"], measured.name])),
            "namespace": meta["namespace"],
            "labels": {names.EXPERIMENT_LABEL: snapshot.name, names.MANAGED_BY_LABEL: "slipway"},
        },
        "spec": body.model_dump(by_alias=True, exclude_none=True),
    }


def _point(window: Window) -> CapacityPoint:
    return CapacityPoint(
        level=window.level,
        throughput=window.throughput.value,
        latencies=window.latencies,
        tokens_per_second=window.tokens_per_second,
        prompt_tokens_per_second=window.prompt_tokens_per_second,
        usage=window.usage,
    )
