"""The messages of an experiment's status, from numbers of the same status."""

import math

from serving.resources.tuning.experiment_status import Recommendation
from serving.resources.tuning.trial import Estimate
from tuner import notation, settled
from tuner.constraints import bound_of
from tuner.observation import CAUSES
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.report.text import measure, phrases
from tuner.search.decision import Impossible
from tuner.trial_record import TrialRecord

_SHARE = 0.005
"""Smaller savings are not mentioned."""
_BECAUSE = {
    "budget": "the budget is used up",
    "regret": "little is left to be found",
    "exhausted": "every spec was measured",
}


def recommended(snapshot: ExperimentSnapshot, best: Recommendation, because: str, regret: float) -> str:
    """Return the recommended spec, its saving, why the search stopped, and whether the result is settled."""
    measured = measure.of_objective(snapshot.experiment_spec.objective)
    value = measured.estimate(Estimate(value=best.objective, low=best.low, high=best.high))
    words = notation.spec(best.settings)
    if value is not None:
        words += f": {measured.sentence.format(notation.interval(value, measured.write))}"
    if best.current_cost_per_hour > 0:
        share = 1 - best.cost_per_hour / best.current_cost_per_hour
        if abs(share) > _SHARE:
            words += f"; a replica costs {abs(share):.0%} {'less' if share > 0 else 'more'} than today's"
    words += f". Stopped as {_BECAUSE.get(because, because)}; it is {phrases.expected_regret(regret)}"
    unsettled = settled.why_unsettled(
        trials=sum(trial.over for trial in snapshot.trials),
        specs=snapshot.space.size,
        regret=regret,
        probability=best.probability,
    )
    return (
        words
        if unsettled is None
        else f"{phrases.unsettled(unsettled)}: {words}; {phrases.unsettled_reasons(unsettled)}"
    )


def so_far(snapshot: ExperimentSnapshot, starting: int) -> str:
    """Return the progress of the search; `starting` is the number of trials that begin now."""
    over = sum(trial.over for trial in snapshot.trials)
    words = f"{over} of at most {snapshot.experiment_spec.max_num_trials} trials have ended"
    words += f", {snapshot.running + starting} running"
    stale = sum(trial.stale for trial in snapshot.trials)
    return words + (f"; {stale} measured the previous model and no longer count" if stale else "")


def _failure(trial: TrialRecord) -> str:
    """Return why a spec did not run; empty if it ran."""
    status = trial.status
    if status.reason in CAUSES:
        return status.reason
    if status.result is None or status.result.throughput.value > 0:
        return ""
    note = next((note for note in status.notes if note.startswith("RequestsFailed")), "")
    return f"nothing was answered ({note})" if note else "nothing was answered"


def impossible(
    snapshot: ExperimentSnapshot, decision: Impossible, nearest: TrialRecord | None
) -> tuple[str, str]:
    """Return reason and message of a search without result: the broken constraint, the nearest spec."""
    over = sum(trial.over for trial in snapshot.trials)
    if decision.constraint is None:
        failures = [why for trial in snapshot.trials if (why := _failure(trial))]
        ran = "none of {} trials ran" if len(failures) == over else "of {} trials no spec ran every time"
        return "NothingRuns", f"{ran.format(over)}: {', '.join(sorted(set(failures)))}"
    broken = snapshot.experiment_spec.constraints[decision.constraint]
    words = f"none of {over} trials met {notation.constraint(broken, bound_of(broken))}"
    if decision.nearest is not None:
        settings = snapshot.space.settings(decision.nearest)
        times = math.exp(decision.margins[decision.constraint])
        words += f"; nearest was {notation.spec(settings)}"
        words += f" ({nearest.name})" if nearest is not None else ""
        words += f" with {times:.3g} times that" if times > 1 else ", which breaks another constraint"
    words += f". An unmeasured spec meets the constraints with a probability of {decision.p_any:.0%}"
    return "ConstraintNotMet", words
