"""The plan of an experiment: its next Trials and its status, from its trials and the decision.

    invalid space ── Failed                missing target ── Pending (it may be created)
    Trials of today's spec and of failed loads, then of the search: Explore → Confirm → Recommend | Impossible

Level-triggered: the same snapshot and decision give the same plan, however much of the last plan was written.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from serving.objects import Object
from serving.resources.kubernetes.conditions import Condition, Status
from serving.resources.tuning.experiment_status import (
    PriorExperiment,
    ProfilingExperimentStatus,
    Recommendation,
)
from serving.resources.tuning.trial import FINISHED
from tuner.planning import best, budget, status_messages, status_report, trial_objects
from tuner.planning.budget import PlannedTrial
from tuner.planning.exchange import ExperimentPlan
from tuner.planning.snapshot import ExperimentSnapshot, Phase
from tuner.planning.status_report import Verdict
from tuner.search.decision_values import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.problem import Budget
from tuner.trial_record import TrialRecord

SPACE_VALID = "SpaceValid"
TARGET_READY = "TargetReady"
RECOMMENDED = "Recommended"
_VALID = Condition(SPACE_VALID, "True", "Valid")
_READY = Condition(TARGET_READY, "True", "Ready")
_BECAUSE = {"budget": "BudgetUsedUp", "regret": "LittleLeftToFind", "exhausted": "AllMeasured"}
"""Reason of the condition Recommended, by the reason why the search stopped."""


def search_budget(snapshot: ExperimentSnapshot, now: dt.datetime) -> Budget | None:
    """Return the search's budget; None if the next step needs no search."""
    if snapshot.experiment_spec.suspend or budget.unloadable(snapshot) is not None:
        return None
    # The owed trials take every free place, so that none remains for the search. With a used-up budget no
    # trial begins, and the search gives the result.
    if len(budget.owed(snapshot)) >= budget.free(snapshot) and not budget.exhausted(snapshot, now):
        return None
    return budget.of_search(snapshot, now)


def pending(snapshot: ExperimentSnapshot, now: dt.datetime) -> tuple[int, ...]:
    """Return the rows (in the space) of the specs that are being measured, or are repeated in any case."""
    again = () if budget.exhausted(snapshot, now) else budget.to_repeat(snapshot)
    trials = [*(trial for trial in snapshot.trials if not trial.is_over and not trial.stale), *again]
    return tuple(trial.index for trial in trials if trial.index is not None)


def plan(snapshot: ExperimentSnapshot, decision: Decision | None, now: dt.datetime) -> ExperimentPlan:
    """Return the objects to write.

    Args:
        snapshot: the experiment, its trials, its target.
        decision: of the search with the budget of `search_budget`; None if there was no search.
        now: UTC.
    """
    planned = _planned_trials(snapshot, decision, now)
    if isinstance(decision, Recommend | Impossible) and (snapshot.running or planned):
        # Some trials that run or begin, such as that of today's spec, are unknown to the search, but they are
        # counted and reported: the experiment ends after these.
        decision = None
    first = trial_objects.next_number(snapshot)
    trials = [trial_objects.trial(snapshot, first + i, trial, decision) for i, trial in enumerate(planned)]
    verdict = _verdict(snapshot, decision, planned)
    used = budget.spent(snapshot.trials)
    status, events = status_report.status_and_events(
        snapshot.experiment,
        snapshot.status,
        verdict,
        specs=snapshot.space.size,
        counted=status_report.counts([trial.status for trial in snapshot.trials], len(trials)),
        seconds=used.seconds,
        cost=used.cost,
        now=now,
    )
    # The last trial of the winner may have broken a constraint at its lowest load; its complete ones count.
    winner = best.measured(snapshot, decision.index)[-1] if isinstance(decision, Recommend) else None
    return ExperimentPlan(
        trials=trials,
        profile=trial_objects.profile(snapshot, winner) if winner is not None else None,
        status=status,
        events=events,
    )


def refused(
    experiment: Object, trials: Sequence[TrialRecord], condition: Condition, phase: Phase, now: dt.datetime
) -> ExperimentPlan:
    """Return the plan of an experiment that lacks a space, a target or its search algorithm.

    Its phase is Failed only once all its trials have ended, as they are counted.

    Args:
        experiment: the ProfilingExperiment object.
        trials: its Trials.
        condition: SpaceValid, TargetReady or Recommended, with the reason.
        phase: Failed, or Pending for a temporary reason.
        now: UTC.
    """
    before = ProfilingExperimentStatus.model_validate(experiment.get("status") or {})
    met_before: dict[str, tuple[Condition, ...]] = {
        SPACE_VALID: (),
        TARGET_READY: (_VALID,),
        RECOMMENDED: (_VALID, _READY),
    }
    conditions = (*met_before[condition.type], condition)
    if phase in FINISHED and not all(trial.is_over for trial in trials):
        phase = "Running"
    used = budget.spent(trials)
    status, events = status_report.status_and_events(
        experiment,
        before,
        Verdict(phase, conditions, before.best),
        specs=before.specs,
        counted=status_report.counts([trial.status for trial in trials]),
        seconds=used.seconds,
        cost=used.cost,
        now=now,
    )
    return ExperimentPlan(status=status, events=events)


def _planned_trials(
    snapshot: ExperimentSnapshot, decision: Decision | None, now: dt.datetime
) -> list[PlannedTrial]:
    """Return the measurements to begin now, within parallelism and budget."""
    if (
        snapshot.experiment_spec.suspend
        or budget.exhausted(snapshot, now)
        or budget.unloadable(snapshot) is not None
    ):
        return []
    planned = budget.owed(snapshot)
    if isinstance(decision, Explore | Confirm):
        purpose: budget.Purpose = "Confirm" if isinstance(decision, Confirm) else "Explore"
        planned += [PlannedTrial(purpose, snapshot.space.settings(index)) for index in decision.indices]
    remaining = snapshot.experiment_spec.max_num_trials - len(snapshot.trials)
    return planned[: min(budget.free(snapshot), remaining)]


def _verdict(snapshot: ExperimentSnapshot, decision: Decision | None, planned: list[PlannedTrial]) -> Verdict:
    """Return the state of an experiment whose space is valid and whose target is ready."""
    phase: Phase
    outcome: tuple[Status, str, str]  # status, reason and message of the condition Recommended
    shown_best = snapshot.status.best
    if decision is not None:
        shown_best = best.recommendation(snapshot, decision)
    regret = decision.expected_regret if isinstance(decision, Explore | Confirm | Wait | Recommend) else None
    recommendation: Recommendation | None = None
    confirms = [trial for trial in snapshot.trials if trial.spec.purpose == "Confirm" and not trial.is_over]
    if (unloadable := budget.unloadable(snapshot)) is not None and not snapshot.running:
        message = f"{unloadable.name}: {unloadable.status.message}"
        phase, outcome = "Failed", ("False", unloadable.status.reason, message)
    elif isinstance(decision, Impossible):
        nearest = None if decision.nearest is None else _measured(snapshot, decision.nearest)
        phase, outcome = "Failed", ("False", *status_messages.impossible(snapshot, decision, nearest))
    elif isinstance(decision, Recommend):
        recommendation = shown_best = _recommendation(snapshot, decision)
        phase, outcome = "Succeeded", ("True", _BECAUSE[decision.because], recommendation.message)
    elif snapshot.experiment_spec.suspend:
        phase, outcome = "Suspended", ("False", "Suspended", status_messages.so_far(snapshot, 0))
    elif confirms or any(trial.purpose == "Confirm" for trial in planned):
        phase, outcome = "Confirming", ("False", "Confirming", status_messages.so_far(snapshot, len(planned)))
    else:
        phase, outcome = "Running", ("False", "Searching", status_messages.so_far(snapshot, len(planned)))
    is_valid = replace(_VALID, message=snapshot.space_note)
    conditions = (is_valid, _READY, Condition(RECOMMENDED, *outcome))
    repeatability = round(decision.repeatability, 6) if decision is not None else None
    return Verdict(phase, conditions, shown_best, recommendation, regret, _learned(decision), repeatability)


def _learned(decision: Decision | None) -> list[PriorExperiment] | None:
    """Return the earlier experiments with their weights; None without a search, to keep the stored ones."""
    if decision is None:
        return None
    return [PriorExperiment(experiment=name, weight=round(weight, 4)) for name, weight in decision.learned]


def _recommendation(snapshot: ExperimentSnapshot, decision: Recommend) -> Recommendation:
    result = best.recommendation(snapshot, decision)
    if result is None:
        raise ValueError(f"spec {decision.index} was recommended without a result")
    message = status_messages.recommended(snapshot, result, decision.because, decision.expected_regret)
    return result.model_copy(update={"message": message})


def _measured(snapshot: ExperimentSnapshot, index: int) -> TrialRecord:
    """Return the last trial that gave an observation of the spec at `index`."""
    return [trial for trial in snapshot.trials if trial.index == index and trial.observation is not None][-1]
