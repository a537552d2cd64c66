"""The choice of the best measured spec that meets its constraints with an allowance for noise.

Specs whose margins hold at the safety quantile are safe. Of these the best expected objective wins, and of
equal objectives the higher probability to meet the constraints. If no spec is safe, the highest probability
wins, and of equal probabilities the best expected objective.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from serving.resources.tuning.experiment_status import Rule
from tuner.search.decision_values import IndexedAlternative
from tuner.search.posterior import Prediction
from tuner.search.problem import Floats, TrialObservation

SAFETY_QUANTILE = 2.33
"""Quantile of the standard normal distribution: 99 of 100 further measurements of a recommended spec should
meet the constraints."""
EQUAL = 0.005
"""Difference between two log objectives up to which they count as equal: no trial is that precise, and a
smaller saving is not mentioned anywhere."""
SAME_COST = 1e-9
"""Difference between two log costs up to which the prices are equal: sums in another order round
differently."""


@dataclass(frozen=True)
class RankedSpec:
    """A measured spec, with the model's values for it."""

    index: int
    """The spec's row in the space."""
    log_objective: float
    deviation: float
    """Standard deviation of `log_objective`."""
    margins: tuple[float, ...]
    safety: float
    """Least distance below 0 of its margins' values at the safety quantile; 0 without constraints."""
    probability: float
    """That one further measurement meets every constraint."""
    confirmations: int
    complete: bool
    """Whether a trial of the spec ran to its end: an expectation alone does not recommend a spec."""

    @property
    def is_safe(self) -> bool:
        """Whether its margins hold at the safety quantile."""
        return self.safety >= 0

    @property
    def percent(self) -> int:
        """The probability in whole per cents, as it is shown and compared: the noise is not known better."""
        return round(100 * self.probability)


@dataclass(frozen=True)
class MeanMargins:
    """The mean margins of a spec that ran."""

    index: int
    margins: tuple[float, ...]
    """One for each constraint."""


def best(ranked: Sequence[RankedSpec]) -> RankedSpec | None:
    """Return the spec to recommend: the first that was measured completely, else the first."""
    return next((spec for spec in ranked if spec.complete), ranked[0] if ranked else None)


def ranked(
    observations: Sequence[TrialObservation], prediction: Prediction, *, quantile: float
) -> tuple[RankedSpec, ...]:
    """Return the measured specs that met their constraints on average, best first.

    Args:
        observations: all of the search.
        prediction: of the model after them.
        quantile: standard normal quantile at which a further measurement should still meet the constraints.
    """
    feasible = _feasible(observations)
    return ordered([_ranked_spec(index, observations, prediction, quantile) for index in feasible])


def ordered(specs: Sequence[RankedSpec]) -> tuple[RankedSpec, ...]:
    """Return specs in the order of the choice: the safe ones, then the others."""
    unsafe = [spec for spec in specs if not spec.is_safe]
    return (
        *_in_order_of_safe([spec for spec in specs if spec.is_safe]),
        *sorted(unsafe, key=lambda spec: (-spec.percent, -spec.log_objective)),
    )


def _in_order_of_safe(specs: Sequence[RankedSpec]) -> list[RankedSpec]:
    """Return safe specs: each is the most probable of those that equal the best of the rest."""
    rest = sorted(specs, key=lambda spec: -spec.log_objective)
    order: list[RankedSpec] = []
    while rest:
        equal = [each for each in rest if rest[0].log_objective - each.log_objective <= EQUAL]
        first = max(equal, key=lambda spec: spec.percent)
        rest.remove(first)
        order.append(first)
    return order


def alternative(
    ranked: Sequence[RankedSpec], chosen: RankedSpec, log_cost: Floats
) -> IndexedAlternative | None:
    """Return the other completely measured spec of the chosen one's price with the best objective.

    None if no other spec of this price was measured completely.

    Args:
        ranked: the specs.
        chosen: one of them.
        log_cost: (n,): log of each spec's price.
    """
    same = [
        spec
        for spec in ranked
        if spec.complete
        and spec.index != chosen.index
        and abs(float(log_cost[spec.index] - log_cost[chosen.index])) <= SAME_COST
    ]
    if not same:
        return None
    other = max(same, key=lambda spec: spec.log_objective)
    return IndexedAlternative(other.index, other.probability, rule(chosen, other))


def rule(chosen: RankedSpec, other: RankedSpec) -> Rule:
    """Return the rule by which a spec comes before another that ranks lower."""
    if chosen.is_safe and not other.is_safe:
        return "OnlySafe"
    if not chosen.is_safe:
        return "HigherProbability" if chosen.percent > other.percent else "EqualProbability"
    is_equal = abs(chosen.log_objective - other.log_objective) <= EQUAL
    return "EqualObjective" if is_equal and chosen.percent > other.percent else "BetterObjective"


def _feasible(observations: Sequence[TrialObservation]) -> list[int]:
    """Return the specs that ran every time and met their constraints on average."""
    return [spec.index for spec in _running(observations) if all(margin <= 0 for margin in spec.margins)]


def _running(observations: Sequence[TrialObservation]) -> list[MeanMargins]:
    """Return the specs that ran every time."""
    by_spec: dict[int, list[TrialObservation]] = {}
    for observation in observations:
        by_spec.setdefault(observation.index, []).append(observation)
    return [
        MeanMargins(
            index, tuple(float(mean) for mean in np.mean([each.margins for each in repeated], axis=0))
        )
        for index, repeated in by_spec.items()
        if all(observation.boots for observation in repeated)
    ]


def _ranked_spec(
    index: int, observations: Sequence[TrialObservation], prediction: Prediction, quantile: float
) -> RankedSpec:
    """Return a spec with the model's margins, widened by the noise of one further measurement."""
    repeated = [observation for observation in observations if observation.index == index]
    noise = math.sqrt(float(np.mean([observation.repeat_noise**2 for observation in repeated])))
    margins = tuple(float(margin.mean[index]) for margin in prediction.margins)
    deviations = [math.hypot(float(margin.deviation[index]), noise) for margin in prediction.margins]
    with_deviation = list(zip(margins, deviations, strict=True))
    return RankedSpec(
        index=index,
        log_objective=float(prediction.objective.mean[index]),
        deviation=float(prediction.objective.deviation[index]),
        margins=margins,
        safety=min((-mean - quantile * deviation for mean, deviation in with_deviation), default=0.0),
        probability=math.prod(float(ndtr(-mean / deviation)) for mean, deviation in with_deviation),
        confirmations=sum(observation.confirms for observation in repeated),
        complete=any(
            not observation.censored and observation.log_objective is not None for observation in repeated
        ),
    )


def nearest(observations: Sequence[TrialObservation]) -> MeanMargins | None:
    """Return the spec that came nearest to meeting every constraint; None if no spec ran every time."""
    return min(_running(observations), key=lambda spec: max(spec.margins, default=0.0), default=None)
