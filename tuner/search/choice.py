"""The choice of the best measured spec that meets its constraints with a margin for the noise."""

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
    """Whether a trial of the spec ran to its end: an expectation alone does not recommend a spec."""


@dataclass(frozen=True)
class MeanMargins:
    """The mean margins of a spec that ran."""

    index: int
    margins: tuple[float, ...]
    """One for each constraint."""


def best(ranked: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate to recommend: the first that was measured completely, else the first."""
    return next((candidate for candidate in ranked if candidate.complete), ranked[0] if ranked else None)


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
    candidates = [_candidate(index, observations, prediction, quantile) for index in _feasible(observations)]
    return tuple(sorted(candidates, key=_sort_key))


def _sort_key(candidate: Candidate) -> tuple[bool, float]:
    is_safe = candidate.safety >= 0
    return not is_safe, -candidate.log_objective if is_safe else -candidate.safety


def _feasible(observations: Sequence[Observation]) -> list[int]:
    """Return the specs that ran every time and met their constraints on average."""
    return [spec.index for spec in _running(observations) if all(margin <= 0 for margin in spec.margins)]


def _running(observations: Sequence[Observation]) -> list[MeanMargins]:
    """Return the specs that ran every time."""
    by: dict[int, list[Observation]] = {}
    for observation in observations:
        by.setdefault(observation.index, []).append(observation)
    return [
        MeanMargins(
            index, tuple(float(mean) for mean in np.mean([each.margins for each in repeated], axis=0))
        )
        for index, repeated in by.items()
        if all(observation.boots for observation in repeated)
    ]


def _candidate(
    index: int, observations: Sequence[Observation], prediction: Prediction, quantile: float
) -> Candidate:
    repeated = [observation for observation in observations if observation.index == index]
    noise = math.sqrt(float(np.mean([observation.again**2 for observation in repeated])))
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
        confirmations=sum(observation.confirms for observation in repeated),
        complete=not all(observation.censored for observation in repeated),
    )


def nearest(observations: Sequence[Observation]) -> MeanMargins | None:
    """Return the spec that came nearest to meeting every constraint; None if no spec ran every time."""
    return min(_running(observations), key=lambda spec: max(spec.margins, default=0.0), default=None)
