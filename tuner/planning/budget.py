"""The budget of an experiment, and the measurements that the experiment needs before any of the search."""

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from serving import errors
from serving.objects import Object
from serving.resources.formats import duration, quantity
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from tuner.planning.snapshot import ExperimentSnapshot, SpecPoint
from tuner.search.problem import Budget
from tuner.trial_record import TrialRecord

Purpose = Literal["Explore", "Confirm", "Baseline"]


@dataclass(frozen=True)
class PlannedTrial:
    """A trial to create."""

    purpose: Purpose
    settings: SpecPoint
    """The spec to measure; empty for today's spec."""


@dataclass(frozen=True)
class Consumption:
    """The time and cost of an experiment so far."""

    seconds: float
    """Sum of the trials' durations."""
    cost: float
    """Cost of the trials' replicas, by the experiment's prices."""


def spent(trials: Sequence[TrialRecord]) -> Consumption:
    """Return the consumption of the ended trials; the duration of a running one is 0 until it ends."""
    return Consumption(
        sum(trial.status.seconds for trial in trials),
        sum(trial.status.seconds / 3600 * trial.spec.cost_per_hour for trial in trials),
    )


def exhausted(snapshot: ExperimentSnapshot, now: dt.datetime) -> str:
    """Return the name of the spec's budget field that is used up; empty if none is."""
    if len(snapshot.trials) >= snapshot.experiment_spec.max_num_trials:
        return "maxNumTrials"
    if snapshot.experiment_spec.max_duration is not None and snapshot.status.start_time:
        elapsed = now - dt.datetime.fromisoformat(snapshot.status.start_time)
        active = elapsed.total_seconds() - suspended_seconds(snapshot.status, now)
        if active >= duration.seconds(snapshot.experiment_spec.max_duration):
            return "maxDuration"
    max_cost = snapshot.experiment_spec.max_cost
    if max_cost is not None and spent(snapshot.trials).cost >= float(max_cost):
        return "maxCost"
    return ""


def suspended_seconds(status: ProfilingExperimentStatus, now: dt.datetime) -> float:
    """Return the seconds since the first trial for which the experiment was suspended or over, until now."""
    since = status.suspend_time or status.completion_time
    if not since or not status.start_time:
        return status.suspended_seconds
    return status.suspended_seconds + (now - dt.datetime.fromisoformat(since)).total_seconds()


def owed(snapshot: ExperimentSnapshot) -> list[PlannedTrial]:
    """Return the measurements that precede the search: today's spec, and the trials to repeat."""
    planned = [PlannedTrial(trial.spec.purpose, tuple(trial.spec.settings)) for trial in to_repeat(snapshot)]
    if snapshot.experiment_spec.target.inference is not None and snapshot.baseline is None:
        planned.insert(0, PlannedTrial("Baseline", ()))
    return planned


def to_repeat(snapshot: ExperimentSnapshot) -> list[TrialRecord]:
    """Return the trials to repeat: those without information that are the last of their purpose and spec."""
    tries = snapshot.tuner_settings.trials.tries
    return [
        group[-1]
        for group in _groups(snapshot)
        if group[-1].is_uninformative and _failures(group, tries) < tries
    ]


def unloadable(snapshot: ExperimentSnapshot) -> TrialRecord | None:
    """Return a Trial of the space whose load failed in every attempt; None if there is none.

    Outside the space, today's spec may lack a setting that the load names, and that every spec in it has.
    """
    tries = snapshot.tuner_settings.trials.tries
    groups = [group for group in _groups(snapshot) if group[-1].index is not None]
    return next((group[-1] for group in groups if _failures(group, tries) >= tries), None)


def free(snapshot: ExperimentSnapshot) -> int:
    """Return how many more trials may run now."""
    return max(0, snapshot.experiment_spec.parallelism - snapshot.running)


def of_search(snapshot: ExperimentSnapshot, now: dt.datetime) -> Budget:
    """Return the budget of the search, which does not count the trials that the search does not know.

    Of a used-up budget no trial remains, so that the search ends.
    """
    unknown = sum(not is_seen(trial) for trial in snapshot.trials)
    total = len(snapshot.trials) if exhausted(snapshot, now) else snapshot.experiment_spec.max_num_trials
    return Budget(total - unknown, snapshot.experiment_spec.parallelism)


def is_seen(trial: TrialRecord) -> bool:
    """Return whether the search knows this trial, as an observation or as a pending measurement."""
    return (
        trial.index is not None and not trial.stale and (trial.observation is not None or not trial.is_over)
    )


def todays_settings(snapshot: ExperimentSnapshot) -> SpecPoint:
    """Return today's settings of the tuned parameters, without those whose value is not on their axis.

    A setting is today's if the Pod template that it renders to is that of today's spec.

    Raises:
        errors.Permanent: TargetInvalid, an amount of a container's resources is no quantity.
    """
    today = _in_numbers(snapshot.render(()).template)
    settings: list[Setting] = []
    for axis in snapshot.space.axes:
        for value in axis.values:
            setting = Setting(category=axis.category, name=axis.name, value=value)
            if _renders_to(snapshot, setting, today):
                settings.append(setting)
                break
    return tuple(settings)


def _renders_to(snapshot: ExperimentSnapshot, setting: Setting, template: Object) -> bool:
    """Return whether today's spec with this setting has the Pod template, whose resources are numbers."""
    try:
        return _in_numbers(snapshot.render((setting,)).template) == template
    except errors.Permanent:
        return False  # it is valid only beside another setting, as cores of a GPU beside its memory


def _in_numbers(template: Object) -> Object:
    """Return the template with its resources as numbers, so that `1` and `1000m` are equal.

    Raises:
        errors.Permanent: TargetInvalid, an amount is no quantity.
    """
    containers = [
        {
            **container,
            "resources": {
                kind: {
                    name: _number(str(amount), f"resources.{kind}.{name} of container {container['name']}")
                    for name, amount in (amounts or {}).items()
                }
                for kind, amounts in (container.get("resources") or {}).items()
                if kind in ("requests", "limits")
            },
        }
        for container in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _number(amount: str, field: str) -> Decimal:
    try:
        return quantity.parse(amount)
    except ValueError as error:
        raise errors.Permanent("TargetInvalid", f"{field}: {error}") from error


def _failures(group: list[TrialRecord], tries: int) -> int:
    """Return how many trials of a group had a failed load.

    An invalid load counts as `tries` of them, as it fails in any trial.
    """
    return sum(tries if trial.load_is_invalid else 1 for trial in group if trial.failed_to_load)


def _groups(snapshot: ExperimentSnapshot) -> list[list[TrialRecord]]:
    """Return the trials of today's model grouped by purpose and settings, each group sorted by number."""
    groups: dict[tuple[str, SpecPoint], list[TrialRecord]] = defaultdict(list)
    for trial in snapshot.trials:
        if not trial.stale:
            key = (trial.spec.purpose, tuple(sorted(trial.spec.settings, key=str)))
            groups[key].append(trial)
    return list(groups.values())
