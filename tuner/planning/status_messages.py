"""Sentences of an experiment's status: what people read first, from numbers that are in the same status."""

import math

from serving.resources.experiment import Recommendation
from serving.resources.trial import Estimate
from tuner import notation
from tuner.constraints import bound_of
from tuner.observation import CAUSES
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.report.text import measure, phrases
from tuner.search.decision import Impossible
from tuner.trial_record import TrialRecord

_SHARE = 0.005
"""Savings below half a percent are none."""
_BECAUSE = {
    "budget": "the budget is used up",
    "regret": "little is left to be found",
    "exhausted": "every spec was measured",
}


def recommended(world: ExperimentSnapshot, found: Recommendation, because: str, regret: float) -> str:
    """Return what is recommended, what it saves, and why the search stopped."""
    shown = measure.of_objective(world.spec.objective)
    value = shown.estimate(Estimate(value=found.objective, low=found.low, high=found.high))
    words = notation.spec(found.settings)
    if value is not None:
        words += f": {shown.sentence.format(notation.interval(value, shown.write))}"
    if found.current_cost_per_hour > 0:
        share = 1 - found.cost_per_hour / found.current_cost_per_hour
        if abs(share) > _SHARE:
            words += f"; a replica costs {abs(share):.0%} {'less' if share > 0 else 'more'} than today's"
    stopped = f"Stopped as {_BECAUSE.get(because, because)}"
    return f"{words}. {stopped}; it is {phrases.missed(regret)}"


def so_far(world: ExperimentSnapshot, made: int) -> str:
    """Return how far the search is; `made` trials are about to begin."""
    over = sum(trial.over for trial in world.trials)
    words = f"{over} of at most {world.spec.max_num_trials} trials are over, {world.running + made} running"
    stale = sum(trial.stale for trial in world.trials)
    return words + (f"; {stale} measured the model of before, and no longer say anything" if stale else "")


def _failure(trial: TrialRecord) -> str:
    """Return why a spec did not run; nothing where it did."""
    status = trial.status
    if status.reason in CAUSES:
        return status.reason
    if status.result is None or status.result.throughput.value > 0:
        return ""
    said = next((note for note in status.notes if note.startswith("RequestsFailed")), "")
    return f"nothing was answered ({said})" if said else "nothing was answered"


def impossible(
    world: ExperimentSnapshot, decision: Impossible, nearest: TrialRecord | None
) -> tuple[str, str]:
    """Return the reason and the words for a search that found nothing: which constraint, and the nearest that there is."""
    over = sum(trial.over for trial in world.trials)
    if decision.constraint is None:
        failed = [why for trial in world.trials if (why := _failure(trial))]
        ran = "none of {} trials ran" if len(failed) == over else "of {} trials no spec ran every time"
        return "NothingRuns", f"{ran.format(over)}: {', '.join(sorted(set(failed)))}"
    broken = world.spec.constraints[decision.constraint]
    words = f"none of {over} trials met {notation.constraint(broken, bound_of(broken))}"
    if decision.nearest is not None:
        settings = world.space.settings(decision.nearest)
        times = math.exp(decision.margins[decision.constraint])
        words += f"; nearest was {notation.spec(settings)}"
        words += f" ({nearest.name})" if nearest is not None else ""
        words += f" with {times:.3g} times that" if times > 1 else ", which breaks another constraint"
    words += f". That a spec which was not measured meets them has a probability of {decision.p_any:.0%}"
    return "ConstraintNotMet", words
