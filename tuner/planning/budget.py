"""What an experiment may still spend, and which specs it owes a measurement whatever the search says."""

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving.objects import Object
from serving.resources import duration, quantity
from serving.resources.experiment import Setting
from tuner.planning.snapshot import ExperimentSnapshot, Settings
from tuner.search.problem import Budget
from tuner.trial_record import TrialRecord

Purpose = Literal["Explore", "Confirm", "Baseline"]


@dataclass(frozen=True)
class WantedTrial:
    """A measurement that is wanted."""

    purpose: Purpose
    settings: Settings


@dataclass(frozen=True)
class Spent:
    """What the experiment has used."""

    seconds: float
    """Of trials, one after the other."""
    cost: float
    """Of the replicas that were measured, by the experiment's prices."""


def spent(trials: Sequence[TrialRecord]) -> Spent:
    """Return what those of them that are over have taken."""
    return Spent(
        sum(trial.status.seconds for trial in trials),
        sum(trial.status.seconds / 3600 * trial.spec.cost_per_hour for trial in trials),
    )


def exhausted(world: ExperimentSnapshot, now: dt.datetime) -> str:
    """Return which budget is used up, as a field of the experiment; empty where none is."""
    if len(world.trials) >= world.spec.max_num_trials:
        return "maxNumTrials"
    if world.spec.max_duration is not None and world.status.start_time:
        since = now - dt.datetime.fromisoformat(world.status.start_time)
        if since.total_seconds() >= duration.seconds(world.spec.max_duration):
            return "maxDuration"
    if world.spec.max_cost is not None and spent(world.trials).cost >= float(world.spec.max_cost):
        return "maxCost"
    return ""


def owed(world: ExperimentSnapshot) -> list[WantedTrial]:
    """Return what is measured before the search is asked: today's spec, and specs whose load could not be made."""
    wishes = [WantedTrial(trial.spec.purpose, tuple(trial.spec.settings)) for trial in to_repeat(world)]
    if world.spec.target.inference is not None and world.baseline is None:
        wishes.insert(0, WantedTrial("Baseline", ()))
    return wishes


def to_repeat(world: ExperimentSnapshot) -> list[TrialRecord]:
    """Return trials that said nothing of their specs, and are to be made again."""
    return [
        tried[-1]
        for tried in _groups(world)
        if tried[-1].says_nothing
        and _failures(tried, world.settings.trials.tries) < world.settings.trials.tries
    ]


def unloadable(world: ExperimentSnapshot) -> TrialRecord | None:
    """Return a Trial whose spec's load could not be made however often it was tried; None where there is none."""
    return next(
        (
            tried[-1]
            for tried in _groups(world)
            if _failures(tried, world.settings.trials.tries) >= world.settings.trials.tries
        ),
        None,
    )


def free(world: ExperimentSnapshot) -> int:
    """Return how many more trials may run at once."""
    return max(0, world.spec.parallelism - world.running)


def of_search(world: ExperimentSnapshot, now: dt.datetime) -> Budget:
    """Return the budget as the search counts: of the trials that it is told of."""
    unseen = sum(not is_seen(trial) for trial in world.trials)
    total = len(world.trials) if exhausted(world, now) else world.spec.max_num_trials
    return Budget(total - unseen, world.spec.parallelism)


def is_seen(trial: TrialRecord) -> bool:
    """Whether the search is told of this trial, as measured or as being measured."""
    return trial.index is not None and not trial.stale and (trial.observation is not None or not trial.over)


def present(world: ExperimentSnapshot) -> Settings:
    """Return what today's spec has of the space's parameters; not all, where a value of it is not among the axis's."""
    today = world.render(())
    found: list[Setting] = []
    for axis in world.space.axes:
        for value in axis.values:
            setting = Setting(category=axis.category, name=axis.name, value=value)
            with_it = world.render((setting,))
            if _in_numbers(with_it.template) == _in_numbers(today.template):
                found.append(setting)
                break
    return tuple(found)


def _in_numbers(template: Object) -> Object:
    """Return the template with its limits as numbers: `1` and `1000m` are the same."""
    containers = [
        {
            **container,
            "resources": {
                kind: {name: quantity.parse(str(amount)) for name, amount in (found or {}).items()}
                for kind, found in (container.get("resources") or {}).items()
                if kind in ("requests", "limits")
            },
        }
        for container in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _failures(tried: list[TrialRecord], tries: int) -> int:
    """Return how often the load could not be made; one that was wrong as it was asked for will not be right the next time."""
    return sum(tries if trial.load_is_invalid else 1 for trial in tried if trial.failed_to_load)


def _groups(world: ExperimentSnapshot) -> list[list[TrialRecord]]:
    """Return the trials of today's model by what they were to measure, each by number."""
    found: dict[tuple[str, Settings], list[TrialRecord]] = defaultdict(list)
    for trial in world.trials:
        if not trial.stale:
            key = (trial.spec.purpose, tuple(sorted(trial.spec.settings, key=str)))
            found[key].append(trial)
    return list(found.values())
