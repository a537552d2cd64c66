"""The choice among measured specs: the best that meets its constraints with a margin for the noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.posterior import Prediction
from tuner.search.problem import Observation


@dataclass(frozen=True)
class Candidate:
    """A measured spec, with the model's values for it."""

    index: int
    log_objective: float
    deviation: float
    margins: tuple[float, ...]
    safety: float
    """Least distance of its margins below 0, at the safety quantile."""
    confirmations: int
    complete: bool
    """Whether any trial of it was not stopped early: a spec is not recommended for an expectation alone."""


@dataclass(frozen=True)
class MeanMargins:
    """The mean margins of a spec that ran."""

    index: int
    margins: tuple[float, ...]
    """One for each constraint."""


def best(ranked: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate to recommend: the first that was measured completely, else the first."""
    return next((one for one in ranked if one.complete), ranked[0] if ranked else None)


def ranked(
    observations: Sequence[Observation], prediction: Prediction, *, quantile: float
) -> tuple[Candidate, ...]:
    """Return the measured specs that meet their constraints, best first.

    Specs whose margins hold at the quantile come before those that only met their constraints when measured.

    Args:
        observations: all of the search.
        prediction: of the model after them.
        quantile: standard normal quantile at which a further measurement should still meet the constraints.
    """
    found = [_candidate(index, observations, prediction, quantile) for index in _feasible(observations)]
    return tuple(
        sorted(
            found, key=lambda one: (one.safety < 0, -one.log_objective if one.safety >= 0 else -one.safety)
        )
    )


def _feasible(observations: Sequence[Observation]) -> list[int]:
    """Return the specs that ran every time and met their constraints on average."""
    return [one.index for one in _running(observations) if all(margin <= 0 for margin in one.margins)]


def _running(observations: Sequence[Observation]) -> list[MeanMargins]:
    """Return the specs that ran every time."""
    by: dict[int, list[Observation]] = {}
    for seen in observations:
        by.setdefault(seen.index, []).append(seen)
    return [
        MeanMargins(index, tuple(float(mean) for mean in np.mean([one.margins for one in seen], axis=0)))
        for index, seen in by.items()
        if all(one.boots for one in seen)
    ]


def _candidate(
    index: int, observations: Sequence[Observation], prediction: Prediction, quantile: float
) -> Candidate:
    seen = [one for one in observations if one.index == index]
    noise = math.sqrt(float(np.mean([one.again**2 for one in seen])))
    margins = tuple(float(margin.mean[index]) for margin in prediction.margins)
    reach = [
        -margin.mean[index] - quantile * math.hypot(float(margin.deviation[index]), noise)
        for margin in prediction.margins
    ]
    return Candidate(
        index=index,
        log_objective=float(prediction.objective.mean[index]),
        deviation=float(prediction.objective.deviation[index]),
        margins=margins,
        safety=float(min(reach, default=0.0)),
        confirmations=sum(one.confirms for one in seen),
        complete=not all(one.censored for one in seen),
    )


def nearest(observations: Sequence[Observation]) -> MeanMargins | None:
    """Return the spec that came nearest to meeting every constraint; None if no spec ran every time."""
    return min(_running(observations), key=lambda one: max(one.margins, default=0.0), default=None)
