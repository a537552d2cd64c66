"""The status of an experiment: phase, conditions, counts, the best spec so far.

It decides nothing about trials.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from serving import clock
from serving.objects import Object
from serving.resources.base import ConditionStatus, in_six_digits
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import Condition
from serving.resources.kubernetes.events import EventToEmit
from serving.resources.tuning.experiment_status import (
    PriorExperiment,
    ProfilingExperimentStatus,
    Recommendation,
    TrialCounts,
)
from serving.resources.tuning.trial import FINISHED, TrialStatus
from tuner.planning import budget
from tuner.planning.snapshot import Phase

_STOPPED_EARLY = ("CannotBeatBest", "BreaksConstraint")
"""Reasons of trials that were stopped early: they have measurements, and count as succeeded, too."""


@dataclass(frozen=True)
class Verdict:
    """The conclusions of planning about an experiment, for its status."""

    phase: Phase
    conditions: tuple[Condition, ...]
    """Without the aggregate Ready; the last one has the result of the search."""
    best: Recommendation | None = None
    """The best spec so far."""
    recommendation: Recommendation | None = None
    """None until the search has ended with one."""
    regret: float | None = None
    """Expected regret, a share of the optimum; None keeps the stored value."""
    learned: Sequence[PriorExperiment] | None = None
    """None keeps the stored value."""
    repeatability: float | None = None
    """Standard deviation of the logarithm of the objective between trials of one spec; None keeps the stored
    value."""


def counts(statuses: Sequence[TrialStatus], starting: int = 0) -> TrialCounts:
    """Return the number of trials by outcome; `starting` is the number of trials to create."""
    over = [status for status in statuses if status.phase in FINISHED]
    stopped_early = sum(status.reason in _STOPPED_EARLY for status in over)
    succeeded = sum(status.phase == "Succeeded" for status in over)
    return TrialCounts(
        total=len(statuses) + starting,
        running=len(statuses) - len(over) + starting,
        succeeded=succeeded,
        stopped_early=stopped_early,
        failed=len(over) - succeeded,
    )


def status_and_events(
    experiment: Object,
    before: ProfilingExperimentStatus,
    verdict: Verdict,
    *,
    specs: int,
    counted: TrialCounts,
    seconds: float,
    cost: float,
    now: dt.datetime,
) -> tuple[Object | None, tuple[EventToEmit, ...]]:
    """Return the status to write, None if it is the stored one, and the Events about the change.

    Args:
        experiment: the ProfilingExperiment object.
        before: its stored status.
        verdict: the conclusions of planning.
        specs: number of specs in the space.
        counted: the trials, including those to create.
        seconds: sum of the trials' durations.
        cost: of the trials' replicas.
        now: UTC.
    """
    generation = experiment["metadata"].get("generation", 1)
    stamp = clock.rfc3339(now)
    ready = conditions.aggregate(verdict.conditions, ready_reason="Recommended")
    if ready.status == "True":
        ready = replace(ready, message=verdict.conditions[-1].message)
    current = [*verdict.conditions, ready]
    stored = (experiment.get("status") or {}).get("conditions")
    uncounted = _uncounted(
        before,
        is_over=verdict.phase in FINISHED,
        is_suspended=bool(experiment["spec"].get("suspend")),
        now=now,
    )
    merged = conditions.merge(stored, current, generation=generation, now=stamp)
    status = ProfilingExperimentStatus(
        phase=verdict.phase,
        specs=specs,
        trials=counted,
        best=verdict.best,
        recommendation=verdict.recommendation,
        expected_regret=before.expected_regret if verdict.regret is None else round(verdict.regret, 6),
        repeatability=before.repeatability if verdict.repeatability is None else verdict.repeatability,
        learned=before.learned if verdict.learned is None else list(verdict.learned),
        spent_seconds=round(seconds, 3),
        spent_cost=round(cost, 9),
        start_time=before.start_time or (stamp if counted.total else ""),
        suspend_time=uncounted.suspend_time,
        suspended_seconds=round(uncounted.seconds, 3),
        completion_time=uncounted.completion_time,
        observed_generation=generation,
        conditions=[ConditionStatus.model_validate(condition) for condition in merged],
    )
    body = as_written(status)
    if body == as_written(before):
        return None, ()
    return body, events(before, status)


class _Uncounted(NamedTuple):
    """The time of an experiment that does not count in maxDuration: while it is suspended, or over."""

    suspend_time: str
    """Beginning of the present suspension; empty without one."""
    completion_time: str
    """End of the experiment; empty before it."""
    seconds: float
    """Sum of the earlier times that do not count."""


def _uncounted(
    before: ProfilingExperimentStatus, *, is_over: bool, is_suspended: bool, now: dt.datetime
) -> _Uncounted:
    """Return the time that does not count; `is_suspended` is the spec's field."""
    stamp = clock.rfc3339(now)
    # Before its first trial an experiment has nothing to suspend: maxDuration counts from that trial.
    waits = bool(before.start_time) and is_suspended and not is_over
    suspend_time = (before.suspend_time or stamp) if waits else ""
    completion_time = (before.completion_time or stamp) if is_over else ""
    # The time since an earlier suspension or end is added up to the start of the present one: nothing while
    # that is the same one.
    until = suspend_time or completion_time
    seconds = budget.suspended_seconds(before, dt.datetime.fromisoformat(until) if until else now)
    return _Uncounted(suspend_time, completion_time, seconds)


def as_written(status: ProfilingExperimentStatus) -> Object:
    """Return the status as JSON, without empty fields, such as times that are not known."""
    body: Object = in_six_digits(status.model_dump(by_alias=True, exclude_none=True))
    return {key: value for key, value in body.items() if value != ""}


def events(before: ProfilingExperimentStatus, after: ProfilingExperimentStatus) -> tuple[EventToEmit, ...]:
    """Return an Event if the phase, or status or reason of Ready, changed."""
    ready = conditions.find([c.model_dump() for c in after.conditions], "Ready") or {}
    stored = conditions.find([c.model_dump() for c in before.conditions], "Ready") or {}
    if (before.phase, stored.get("status"), stored.get("reason")) == (
        after.phase,
        ready.get("status"),
        ready.get("reason"),
    ):
        return ()
    event_type: Literal["Normal", "Warning"] = "Warning" if after.phase == "Failed" else "Normal"
    return (EventToEmit(str(ready["reason"]), str(ready["message"]), event_type),)
