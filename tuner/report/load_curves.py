"""The curve of latency over load in the last trial of each spec of the answer, from its load model. Pure."""

from serving.resources.tuning.trial import LatencyAt, Window
from tuner.load.level_search import results
from tuner.load.level_search.load_model import Metric
from tuner.load.level_search.verdicts import level_verdicts
from tuner.report.evidence import Evidence
from tuner.report.schema import Answer, Choice, Course, CoursePoint
from tuner.trial_record import TrialRecord

_STEP = 1.1
"""Ratio of neighbouring loads; small enough for a smooth line."""


def courses(evidence: Evidence, answer: Answer) -> list[Course]:
    """Return the curves of today's spec, the runner-up and the recommended spec, by their last trials.

    The latency is that of the first constraint on a latency, else the objective's percentile.
    """
    metric: Metric = "latency"
    percentile = evidence.spec.objective.percentile
    for constraint in evidence.spec.constraints:
        if constraint.metric != "errorRate":
            metric, percentile = constraint.metric, constraint.percentile
            break
    curves = []
    for choice in (answer.current, answer.runner_up, answer.choice):
        row = _last(evidence, choice)
        points = [] if row is None else _points(evidence, row, metric, percentile)
        if row is not None and points:
            curves.append(Course(trial=row.name, metric=metric, percentile=percentile, points=points))
    return curves


def _last(evidence: Evidence, choice: Choice | None) -> TrialRecord | None:
    """Return the last of a spec's trials with windows; None without one."""
    rows = [row for row in evidence.rows if choice and row.name in choice.trials and row.status.windows]
    return rows[-1] if rows else None


def _points(evidence: Evidence, row: TrialRecord, metric: Metric, percentile: int) -> list[CoursePoint]:
    """Return the points from the lowest load to the highest one that did not fail."""
    constraints = evidence.spec.constraints
    state = results.state_of(row.spec.load, constraints, row.status.windows, evidence.settings.load)
    model = results.model_of(state, level_verdicts(state))
    if model is None:
        return []
    is_constrained = any((limit.metric, limit.percentile) == (metric, percentile) for limit in model.limited)
    # Without `every`, `at` fits the curves of constrained latencies only, as each curve takes time.
    windows = [model.at(level, every=not is_constrained) for level in model.loads(_STEP)]
    return [
        CoursePoint(level=window.level, throughput=window.throughput, latency=latency)
        for window in windows
        if (latency := _at(window, metric, percentile)) is not None
    ]


def _at(window: Window, metric: Metric, percentile: int) -> LatencyAt | None:
    return next(
        (each for each in window.latencies if (each.metric, each.percentile) == (metric, percentile)), None
    )
