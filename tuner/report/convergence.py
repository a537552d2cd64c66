"""The course of a search: the best so far after each trial, and what was then to be missed."""

from collections.abc import Mapping

from tuner.report.evidence import Evidence
from tuner.report.schema import Step


def steps(evidence: Evidence, regrets: Mapping[int, float]) -> list[Step]:
    """Return a step for each trial that is over, in their order; only complete trials that met the constraints can be the best.

    Args:
        evidence: the trials.
        regrets: by the number of the last trial that was known then.
    """
    found: list[Step] = []
    best: float | None = None
    for row in evidence.rows:
        if not row.status.reason:
            continue
        if row.complete and row.objective is not None and row.meets != "No":
            value = row.objective.value
            if best is None or evidence.score(value) > evidence.score(best):
                best = value
        number = row.spec.number
        found.append(Step(trial=number, best=best, expected_regret=regrets.get(number)))
    return found
