"""The messages of an experiment's status, from numbers of the same status."""

import math

from serving.resources.tuning.experiment_status import Recommendation
from serving.resources.tuning.trial import Estimate
from tuner import notation, settled
from tuner.constraints import bound_of
from tuner.observation import CAUSES
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.report.text import measure, phrases
from tuner.search.decision_values import Impossible
from tuner.trial_record import TrialRecord

_LEAST_SAVING = 0.005
"""Least share of today's cost by which another cost is mentioned: a smaller one is shown as 0 %."""
_BECAUSE = {
    "budget": "the budget is used up",
    "regret": "little is left to be found",
    "exhausted": "every spec was measured",
}
"""The reason why the search stopped, by `Recommend.because`."""


def recommended(snapshot: ExperimentSnapshot, best: Recommendation, because: str, regret: float) -> str:
    """Return the recommended spec, its saving, why the search stopped, and whether the result is settled.

    Args:
        snapshot: the experiment.
        best: the status entry of the recommended spec.
        because: key of _BECAUSE.
        regret: expected, as a share of the optimum from 0 to 1.
    """
    shown = measure.of_objective(snapshot.experiment_spec.objective)
    value = shown.estimate(Estimate(value=best.objective, low=best.low, high=best.high))
    words = notation.spec(best.settings)
    if value is not None:
        words += f": {shown.sentence.format(notation.interval(value, shown.write))}"
    if best.current_cost_per_hour > 0:
        saving = 1 - best.cost_per_hour / best.current_cost_per_hour
        if abs(saving) > _LEAST_SAVING:
            words += f"; a replica costs {abs(saving):.0%} {'less' if saving > 0 else 'more'} than today's"
    words += f". Stopped as {_BECAUSE.get(because, because)}; it is {phrases.expected_regret(regret)}"
    unsettled = settled.why_unsettled(
        trials=sum(trial.is_over for trial in snapshot.trials),
        specs=snapshot.space.size,
        regret=regret,
        probability=best.probability,
    )
    if unsettled is None:
        return words
    return f"{phrases.unsettled(unsettled)}: {words}; {phrases.unsettled_reasons(unsettled)}"


def so_far(snapshot: ExperimentSnapshot, starting: int) -> str:
    """Return the progress of the search; `starting` is the number of trials that begin now."""
    over = sum(trial.is_over for trial in snapshot.trials)
    words = f"{over} of at most {snapshot.experiment_spec.max_num_trials} trials have ended"
    words += f", {snapshot.running + starting} running"
    stale = sum(trial.stale for trial in snapshot.trials)
    return words + (f"; {stale} measured the previous model and no longer count" if stale else "")


def _failure(trial: TrialRecord) -> str:
    """Return why the spec of a trial did not run, or answered no request; empty if it did."""
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
    """Return reason and message of a search without a result: the broken constraint and the nearest spec.

    `nearest` is the last trial of the nearest spec; None if no spec ran.
    """
    over = sum(trial.is_over for trial in snapshot.trials)
    if decision.constraint is None:
        failures = [why for trial in snapshot.trials if (why := _failure(trial))]
        # Otherwise a spec ran in one trial and failed in another.
        ran = "none of {} trials ran" if len(failures) == over else "of {} trials no spec ran every time"
        return "NothingRuns", f"{ran.format(over)}: {', '.join(sorted(set(failures)))}"
    broken = snapshot.experiment_spec.constraints[decision.constraint]
    words = f"none of {over} trials met {notation.constraint(broken, bound_of(broken))}"
    if decision.nearest is not None:
        settings = snapshot.space.settings(decision.nearest)
        # A margin is log(value / bound).
        ratio = math.exp(decision.margins[decision.constraint])
        words += f"; nearest was {notation.spec(settings)}"
        words += f" ({nearest.name})" if nearest is not None else ""
        words += f" with {ratio:.3g} times that" if ratio > 1 else ", which breaks another constraint"
    words += f". An unmeasured spec meets the constraints with a probability of {decision.p_any:.0%}"
    return "ConstraintNotMet", words
