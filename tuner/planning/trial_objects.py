"""Trials and CapacityProfiles as objects. Their names follow from the experiment, so that making one twice makes it once."""

from serving.objects import Object
from serving.planning.inference.revision import NAME_LIMIT, hash8
from serving.resources import kinds, names
from serving.resources.capacity_profile import CapacityPoint, CapacityProfileSpec
from serving.resources.trial import TrialSpec, Window
from tuner.load.level_search import results
from tuner.planning import best, budget
from tuner.planning.budget import WantedTrial
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision import Decision
from tuner.specs import prices
from tuner.trial_record import TrialRecord


def trial_name(experiment: str, number: int) -> str:
    """Return `<experiment>-<number>` in at most 63 characters; what is cut off is kept as a hash."""
    return _fitting(experiment, str(number))


def _fitting(stem: str, tail: str) -> str:
    room = NAME_LIMIT - len(tail) - 1
    if len(stem) > room:
        stem = f"{stem[: room - 9].rstrip('-')}-{hash8(stem)}"
    return f"{stem}-{tail}"


def next_number(world: ExperimentSnapshot) -> int:
    """Return the number of the next Trial."""
    return max((trial.spec.number for trial in world.trials), default=0) + 1


def trial(
    world: ExperimentSnapshot, number: int, wish: WantedTrial, decision: Decision | None = None
) -> Object:
    """Return the Trial that fulfils a wish; what explores may stop early where it cannot beat the best so far."""
    meta = world.experiment["metadata"]
    owner = {
        "apiVersion": kinds.PROFILING_EXPERIMENT.api_version, "kind": kinds.PROFILING_EXPERIMENT.kind,
        "name": meta["name"], "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "apiVersion": kinds.TRIAL.api_version,
        "kind": kinds.TRIAL.kind,
        "metadata": {
            "name": trial_name(world.name, number),
            "namespace": meta["namespace"],
            "labels": {names.EXPERIMENT_LABEL: world.name, names.MANAGED_BY_LABEL: "slipway"},
            "ownerReferences": [owner],
        },
        "spec": _spec(world, number, wish, decision).model_dump(by_alias=True, exclude_none=True),
    }


def _spec(world: ExperimentSnapshot, number: int, wish: WantedTrial, decision: Decision | None) -> TrialSpec:
    rendered = world.render(wish.settings)
    settings, cost = wish.settings, rendered.cost_per_hour
    if wish.purpose == "Baseline":
        settings = budget.present(world)
        tuned = [axis.name for axis in world.space.axes if axis.category == "resource"]
        if prices.unlimited(rendered.template["spec"]["containers"], tuned):
            cost = 0.0  # what it takes is free only for as long as nobody counts
    below = best.to_beat(world, decision, rendered) if wish.purpose == "Explore" and decision else None
    return TrialSpec(
        experiment=world.name,
        number=number,
        purpose=wish.purpose,
        settings=list(settings),
        template=rendered.template,
        model_name=rendered.model_name,
        model_version=rendered.model_version,
        model_digest=rendered.model_digest,
        cost_per_hour=cost,
        batch=rendered.batch,
        load=world.spec.load,
        constraints=list(world.spec.constraints),
        progress_deadline=world.spec.service_progress_deadline,
        # Another for each, so that a measurement that is made again is not the same by construction.
        seed=(world.spec.algorithm.seed + number) % 2**31,
        stop_below_throughput=None if below is None else f"{below:.6f}",
    )


def profile(world: ExperimentSnapshot, measured: TrialRecord) -> Object | None:
    """Return the CapacityProfile of a measured spec; None where no window of it was recorded.

    It has no owner: whoever sizes the service reads it when the experiment has long been deleted.
    """
    status, spec = measured.status, measured.spec
    if not status.windows:
        return None
    state = results.again(spec.load, spec.constraints, status.windows, world.settings.load)
    seen = {window.level: window for window in results.course(state)}
    if status.result is not None:
        seen[status.result.level] = status.result
    body = CapacityProfileSpec(
        model_digest=spec.model_digest,
        model_version=spec.model_version,
        machine=status.machine,
        settings=list(spec.settings),
        mode=spec.load.mode,
        batch=spec.batch,
        points=[_point(seen[level]) for level in sorted(seen)],
        capacity=measured.throughput or 0,
        measured_at=status.completion_time,
        trial=measured.name,
        experiment=world.name,
    )
    meta = world.experiment["metadata"]
    # Another experiment of this name may have left a profile, which stays.
    return {
        "apiVersion": kinds.CAPACITY_PROFILE.api_version,
        "kind": kinds.CAPACITY_PROFILE.kind,
        "metadata": {
            "name": _fitting(world.name, hash8([meta["uid"], measured.name])),
            "namespace": meta["namespace"],
            "labels": {names.EXPERIMENT_LABEL: world.name, names.MANAGED_BY_LABEL: "slipway"},
        },
        "spec": body.model_dump(by_alias=True, exclude_none=True),
    }


def _point(window: Window) -> CapacityPoint:
    return CapacityPoint(
        level=window.level,
        throughput=window.throughput.value,
        latencies=window.latencies,
        tokens_per_second=window.tokens_per_second,
        usage=window.usage,
    )
