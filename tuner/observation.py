"""Converts an experiment's space and its ended Trials into the numbers of the search. Pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from serving.resources.tuning.experiment import Constraint, Objective, ProfilingExperimentSpec
from serving.resources.tuning.trial import FINISHED, Estimate, TrialSpec, TrialStatus, Window
from tuner import intervals
from tuner.constraints import bound_of, measured_value
from tuner.objective import objective_value
from tuner.search.problem import Cause, Floats, Problem, TrialObservation
from tuner.specs import scaling
from tuner.specs.space import Space

CAUSES: dict[str, Cause] = {
    "OutOfMemory": "memory",
    "Crashed": "crash",
    "NotReady": "timeout",
    "TimedOut": "timeout",
    "Refused": "boot",
}
"""Why a spec does not run, by the reason of its trial."""
UNINFORMATIVE = ("LoadFailed", "Interrupted", "")
"""Reasons of a trial without information about its spec; empty for a trial that has not ended."""
BREAKS_CONSTRAINT = "BreaksConstraint"
"""The reason of a trial that broke a constraint at its lowest load already: its constraint values count, its
objective does not."""
MOST_MARGIN = 3.0
"""Margins are clipped at a factor of 20 either way: a larger excess has no information about neighbours."""
LEAST_BROKEN_MARGIN = 0.01
"""Least value of the greatest margin of a trial with the reason BREAKS_CONSTRAINT: its measured margins may
all be at 0 or less, as percentiles are of answered requests, while the reason also counts failed requests."""
TINY = 1e-9
"""Replaces a bound of 0, which has no logarithm."""


class _Margin(NamedTuple):
    """The margin of one constraint: log(value / bound), clipped to MOST_MARGIN either way."""

    value: float
    deviation: float
    """Standard deviation of `value`; 0 if unknown."""


def problem_of(spec: ProfilingExperimentSpec, space: Space, costs: Floats) -> Problem:
    """Return an experiment's space as numbers.

    Args:
        spec: of the experiment.
        space: of the experiment.
        costs: (n,) hourly cost of each spec's replica; zeros without prices.
    """
    log_cost = np.log(costs) if (costs > 0).all() else np.zeros(space.size)
    return Problem(
        coordinates=space.coordinates(),
        ranks=space.ranks(),
        ordered=tuple(axis.ordered for axis in space.axes),
        resource=tuple(axis.category == "resource" for axis in space.axes),
        log_cost=log_cost,
        log_bounds=tuple(math.log(max(bound_of(constraint), TINY)) for constraint in spec.constraints),
        expected=scaling.of_space(space, spec.objective.objective_metric_name, log_cost),
    )


def observation_of(
    spec: TrialSpec,
    status: TrialStatus,
    index: int,
    objective: Objective,
    constraints: Sequence[Constraint],
    *,
    cost_per_hour: float,
) -> TrialObservation | None:
    """Return the observation of a Trial; None while it runs, or without information about its spec.

    A spec that ran, but whose objective cannot be computed (nothing was answered), counts as crashed. A trial
    that broke a constraint at its lowest load has no objective, as no load met the constraints.

    Args:
        spec: of the Trial.
        status: of the Trial.
        index: the row of its spec in the space.
        objective: of the experiment.
        constraints: of the experiment, in the order of the margins.
        cost_per_hour: of the spec's replica; 0 without prices.
    """
    if status.phase not in FINISHED or status.reason in UNINFORMATIVE:
        return None
    confirms = spec.purpose == "Confirm"
    if status.reason in CAUSES:
        cause = CAUSES[status.reason]
        return TrialObservation(index, cause=cause, seconds=status.seconds, confirms=confirms)
    value = None
    if status.result is not None:
        value = objective_value(objective, status.result, cost_per_hour, spec.batch)
    if status.result is None or value is None or value.value <= 0:
        return TrialObservation(index, cause="crash", seconds=status.seconds, confirms=confirms)
    measured_margins = [_margin(constraint, status.result) for constraint in constraints]
    margins = [margin.value for margin in measured_margins]
    if status.reason == BREAKS_CONSTRAINT and margins and max(margins) < LEAST_BROKEN_MARGIN:
        margins[margins.index(max(margins))] = LEAST_BROKEN_MARGIN
    sign = 1.0 if objective.type == "maximize" else -1.0
    has_objective = status.reason != BREAKS_CONSTRAINT
    return TrialObservation(
        index=index,
        log_objective=sign * math.log(value.value) if has_objective else None,
        noise=intervals.log_deviation(value) if has_objective else 0.0,
        margins=tuple(margins),
        margin_noise=max((margin.deviation for margin in measured_margins), default=0.0),
        scatter=status.result.scatter or 0.0,
        seconds=status.seconds,
        confirms=confirms,
        censored=status.reason == "CannotBeatBest",
    )


def _margin(constraint: Constraint, window: Window) -> _Margin:
    """Return the margin of a constraint in a window; a missing value breaks the constraint."""
    value = measured_value(window, constraint.metric, constraint.percentile)
    return _log_margin(value, bound_of(constraint)) if value is not None else _Margin(MOST_MARGIN, 0.0)


def _log_margin(value: Estimate, bound: float) -> _Margin:
    if value.value <= 0:
        return _Margin(-MOST_MARGIN, 0.0)
    if bound <= 0:
        return _Margin(MOST_MARGIN, 0.0)
    margin = math.log(value.value / bound)
    clipped = min(max(margin, -MOST_MARGIN), MOST_MARGIN)
    # The deviation is scaled like the margin, to keep the probability that the constraint is met.
    scale = clipped / margin if margin else 1.0
    return _Margin(clipped, intervals.log_deviation(value) * scale)
