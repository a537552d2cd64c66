"""The plan of an experiment: given its trials and what the search says, which Trials to make and how it stands.

    invalid space ── Failed                target not there ── Pending (it may come)
    owed trials (today's spec, lost loads) and then the search's: Explore → Confirm → Recommend | Impossible

Level-triggered: the same world and decision give the same plan, whatever was written of the last one.
"""

import datetime as dt
from collections.abc import Sequence

from serving.objects import Object
from serving.resources.conditions import Condition, Status
from serving.resources.experiment import Learned, ProfilingExperimentStatus, Recommendation
from serving.resources.trial import FINISHED
from tuner.planning import best, budget, status_messages, status_report, trial_objects
from tuner.planning.budget import WantedTrial
from tuner.planning.exchange import ExperimentPlan
from tuner.planning.snapshot import ExperimentSnapshot, Phase
from tuner.planning.status_report import Verdict
from tuner.search.decision import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.problem import Budget
from tuner.trial_record import TrialRecord

SPACE_VALID = "SpaceValid"
TARGET_READY = "TargetReady"
RECOMMENDED = "Recommended"
_VALID = Condition(SPACE_VALID, "True", "Valid")
_READY = Condition(TARGET_READY, "True", "Ready")
_BECAUSE = {"budget": "BudgetUsedUp", "regret": "LittleLeftToFind", "exhausted": "AllMeasured"}
"""Reasons of a recommendation by why the search stopped."""


def search_budget(world: ExperimentSnapshot, now: dt.datetime) -> Budget | None:
    """Return the budget with which the search is to be asked; None where the next step is known without it."""
    if world.spec.suspend or budget.unloadable(world) is not None:
        return None
    if len(budget.owed(world)) >= budget.free(world) and not budget.exhausted(world, now):
        return None
    return budget.of_search(world, now)


def pending(world: ExperimentSnapshot, now: dt.datetime) -> tuple[int, ...]:
    """Return the rows that are being measured, and those that will be whatever the search says."""
    again = () if budget.exhausted(world, now) else budget.to_repeat(world)
    found = [*(trial for trial in world.trials if not trial.over and not trial.stale), *again]
    return tuple(trial.index for trial in found if trial.index is not None)


def plan(world: ExperimentSnapshot, decision: Decision | None, now: dt.datetime) -> ExperimentPlan:
    """Return what to write.

    Args:
        world: the experiment, its trials, its target.
        decision: the search's answer to `search_budget`; None where there was none.
        now: UTC.
    """
    wishes = _wishes(world, decision, now)
    if isinstance(decision, Recommend | Impossible) and (world.running or wishes):
        # What still runs or begins is of no use to the search (today's spec, say), and is counted and reported all the same.
        decision = None
    first = trial_objects.next_number(world)
    made = [trial_objects.trial(world, first + i, wish, decision) for i, wish in enumerate(wishes)]
    verdict = _verdict(world, decision, wishes)
    used = budget.spent(world.trials)
    status, events = status_report.finished(
        world.experiment,
        world.status,
        verdict,
        specs=world.space.size,
        counted=status_report.counts([trial.status for trial in world.trials], len(made)),
        seconds=used.seconds,
        cost=used.cost,
        now=now,
    )
    winner = _measured(world, decision.index) if isinstance(decision, Recommend) else None
    return ExperimentPlan(
        trials=made,
        profile=trial_objects.profile(world, winner) if winner is not None else None,
        status=status,
        events=events,
    )


def refused(
    experiment: Object, trials: Sequence[TrialRecord], condition: Condition, phase: Phase, now: dt.datetime
) -> ExperimentPlan:
    """Return the plan of an experiment that cannot go on: no space, no target, or no such search; what came before is so.

    It has not failed before what runs is over, as that is counted too.
    """
    before = ProfilingExperimentStatus.model_validate(experiment.get("status") or {})
    before_it = {SPACE_VALID: (), TARGET_READY: (_VALID,), RECOMMENDED: (_VALID, _READY)}[condition.type]
    if phase in FINISHED and not all(trial.over for trial in trials):
        phase = "Running"
    used = budget.spent(trials)
    status, events = status_report.finished(
        experiment,
        before,
        Verdict(phase, (*before_it, condition), before.best),
        specs=before.specs,
        counted=status_report.counts([trial.status for trial in trials]),
        seconds=used.seconds,
        cost=used.cost,
        now=now,
    )
    return ExperimentPlan(status=status, events=events)


def _wishes(world: ExperimentSnapshot, decision: Decision | None, now: dt.datetime) -> list[WantedTrial]:
    """Return what is to be measured now: no more than may run at once, and than the budget has left."""
    if world.spec.suspend or budget.exhausted(world, now) or budget.unloadable(world) is not None:
        return []
    found = budget.owed(world)
    if isinstance(decision, Explore | Confirm):
        purpose: budget.Purpose = "Confirm" if isinstance(decision, Confirm) else "Explore"
        found += [WantedTrial(purpose, world.space.settings(index)) for index in decision.indices]
    left = world.spec.max_num_trials - len(world.trials)
    return found[: min(budget.free(world), left)]


def _verdict(world: ExperimentSnapshot, decision: Decision | None, wishes: list[WantedTrial]) -> Verdict:
    phase: Phase
    said: tuple[Status, str, str]
    shown = world.status.best
    if decision is not None:
        shown = (
            None
            if decision.best is None
            else best.recommendation(world, decision.best, decision.repeatability)
        )
    regret = decision.expected_regret if isinstance(decision, Explore | Confirm | Wait | Recommend) else None
    recommendation: Recommendation | None = None
    confirms = [trial for trial in world.trials if trial.spec.purpose == "Confirm" and not trial.over]
    if (lost := budget.unloadable(world)) is not None and not world.running:
        phase, said = "Failed", ("False", lost.status.reason, f"{lost.name}: {lost.status.message}")
    elif isinstance(decision, Impossible):
        nearest = None if decision.nearest is None else _measured(world, decision.nearest)
        phase, said = "Failed", ("False", *status_messages.impossible(world, decision, nearest))
    elif isinstance(decision, Recommend):
        recommendation = shown = _recommendation(world, decision)
        phase, said = "Succeeded", ("True", _BECAUSE[decision.because], recommendation.message)
    elif world.spec.suspend:
        phase, said = "Suspended", ("False", "Suspended", status_messages.so_far(world, 0))
    elif confirms or any(wish.purpose == "Confirm" for wish in wishes):
        phase, said = "Confirming", ("False", "Confirming", status_messages.so_far(world, len(wishes)))
    else:
        phase, said = "Running", ("False", "Searching", status_messages.so_far(world, len(wishes)))
    conditions = (_VALID, _READY, Condition(RECOMMENDED, *said))
    repeatability = round(decision.repeatability, 6) if decision is not None else None
    return Verdict(phase, conditions, shown, recommendation, regret, _learned(decision), repeatability)


def _learned(decision: Decision | None) -> list[Learned] | None:
    if decision is None:
        return None
    return [Learned(experiment=name, weight=round(weight, 4)) for name, weight in decision.learned]


def _recommendation(world: ExperimentSnapshot, decision: Recommend) -> Recommendation:
    found = best.recommendation(world, decision.index, decision.repeatability)
    if found is None:
        raise ValueError(f"spec {decision.index} was recommended, and has no result")
    message = status_messages.recommended(world, found, decision.because, decision.expected_regret)
    return found.model_copy(update={"message": message})


def _measured(world: ExperimentSnapshot, index: int) -> TrialRecord:
    """Return the trial that measured this row last."""
    return [trial for trial in world.trials if trial.index == index and trial.observation is not None][-1]
