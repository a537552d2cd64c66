"""Converts an experiment's space and its ended Trials into the numbers of the search. Pure."""

import math
from collections.abc import Sequence

import numpy as np

from serving.resources.tuning.experiment import Constraint, Objective, ProfilingExperimentSpec
from serving.resources.tuning.trial import FINISHED, Estimate, TrialSpec, TrialStatus, Window
from tuner import intervals
from tuner.constraints import bound_of, measured_value
from tuner.objective import objective_value
from tuner.search.problem import Cause, Floats, Observation, Problem
from tuner.specs import scaling
from tuner.specs.space import Space

CAUSES: dict[str, Cause] = {
    "OutOfMemory": "memory",
    "Crashed": "crash",
    "NotReady": "timeout",
    "TimedOut": "timeout",
    "Refused": "boot",
}
"""Reasons of a trial whose spec does not run."""
SILENT = ("LoadFailed", "Interrupted", "")
"""Reasons of a trial without information about its spec."""
BREAKS_CONSTRAINT = "BreaksConstraint"
"""The reason of a trial that met its constraints at no load: its constraint values count, its objective
does not."""
MOST_MARGIN = 3.0
"""Margins are clipped at a factor of 20 either way: a larger excess has no information about neighbours."""
LEAST_BROKEN_MARGIN = 0.01
"""Least margin of a trial that broke its constraints at every load: failed requests, which are longer than
any limit, are in no percentile of answers."""
TINY = 1e-9
"""Replaces a bound of 0, which has no logarithm."""


def problem_of(spec: ProfilingExperimentSpec, space: Space, costs: Floats) -> Problem:
    """Return an experiment's space as numbers.

    Args:
        spec: of the experiment.
        space: its space.
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
) -> Observation | None:
    """Return the observation of a Trial; None while it runs, or without information about its spec.

    A spec that ran, but whose objective cannot be computed (nothing was answered), counts as crashed. A trial
    that met its constraints at no load has no objective: its throughput is that of the least load.
    """
    if status.phase not in FINISHED or status.reason in SILENT:
        return None
    confirms = spec.purpose == "Confirm"
    if status.reason in CAUSES:
        cause = CAUSES[status.reason]
        return Observation(index, cause=cause, seconds=status.seconds, confirms=confirms)
    value = None
    if status.result is not None:
        value = objective_value(objective, status.result, cost_per_hour, spec.batch)
    if status.result is None or value is None or value.value <= 0:
        return Observation(index, cause="crash", seconds=status.seconds, confirms=confirms)
    bounded = [_margin(constraint, status.result) for constraint in constraints]
    margins = [margin for margin, _ in bounded]
    if status.reason == BREAKS_CONSTRAINT and margins and max(margins) < LEAST_BROKEN_MARGIN:
        margins[margins.index(max(margins))] = LEAST_BROKEN_MARGIN
    sign = 1.0 if objective.type == "maximize" else -1.0
    has_objective = status.reason != BREAKS_CONSTRAINT
    return Observation(
        index=index,
        log_objective=sign * math.log(value.value) if has_objective else None,
        noise=intervals.log_deviation(value) if has_objective else 0.0,
        margins=tuple(margins),
        margin_noise=max((noise for _, noise in bounded), default=0.0),
        scatter=status.result.scatter or 0.0,
        seconds=status.seconds,
        confirms=confirms,
        censored=status.reason == "CannotBeatBest",
    )


def _margin(constraint: Constraint, window: Window) -> tuple[float, float]:
    """Return log(value / bound) and its standard deviation; a missing value breaks the constraint."""
    value = measured_value(window, constraint.metric, constraint.percentile)
    return _log_margin(value, bound_of(constraint)) if value is not None else (MOST_MARGIN, 0.0)


def _log_margin(value: Estimate, bound: float) -> tuple[float, float]:
    if value.value <= 0:
        return -MOST_MARGIN, 0.0
    if bound <= 0:
        return MOST_MARGIN, 0.0
    margin = math.log(value.value / bound)
    clipped = min(max(margin, -MOST_MARGIN), MOST_MARGIN)
    # The deviation is scaled likewise, to keep the probability that the constraint is met.
    return clipped, intervals.log_deviation(value) * (clipped / margin if margin else 1.0)
