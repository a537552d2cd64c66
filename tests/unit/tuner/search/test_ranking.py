import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.known_surfaces import grid
from tuner.search import next_decision, ranking
from tuner.search.decision_values import Impossible, IndexedAlternative
from tuner.search.next_decision import decide
from tuner.search.posterior import predict
from tuner.search.problem import Budget, TrialObservation
from tuner.search.ranking import (
    EQUAL,
    MeanMargins,
    RankedSpec,
    alternative,
    nearest,
    ordered,
    ranked,
    rule,
)
from tuner.settings import SearchSettings

SPACE = grid(range(4), range(3), log_bounds=(0.0,))
Z99 = 2.33
ENOUGH = SearchSettings(regret=1.0)
"""Ends a search at `LEAST_TRIALS`, but for its confirmations."""


def seen(row: int, objective: float, margin: float, **more) -> TrialObservation:
    return TrialObservation(
        row, log_objective=objective, margins=(margin,), **{"noise": 0.01, "margin_noise": 0.01, **more}
    )


def best(observations: list[TrialObservation], quantile: float = Z99) -> list[int]:
    return [spec.index for spec in ranked(observations, predict(SPACE, observations), quantile=quantile)]


def test_the_best_comes_first_if_its_margin_is_wide():
    assert best([seen(0, 0.0, -1.0), seen(5, 1.0, -1.0), seen(11, 0.5, -1.0)]) == [5, 11, 0]


def test_a_narrow_margin_comes_after_every_wide_one():
    order = best([seen(0, 0.0, -1.0), seen(5, 1.0, -0.01, margin_noise=0.1), seen(11, 0.5, -1.0)])
    assert order == [11, 0, 5]


def test_noise_decides_how_wide_a_margin_must_be():
    narrow = [seen(0, 0.0, -1.0), seen(11, 1.0, -0.2, margin_noise=0.3)]
    assert best(narrow) == [0, 11]
    assert best([narrow[0], seen(11, 1.0, -0.2, margin_noise=0.001)]) == [11, 0]


def test_margin_is_wide_enough_for_another_single_measurement():
    scattered = [seen(0, 0.0, -1.0), seen(11, 1.0, -0.2, margin_noise=0.001, scatter=0.3)]
    assert best(scattered) == [0, 11]


def test_spec_that_broke_its_bound_on_average_or_failed_once_is_no_candidate():
    observations = [
        seen(0, 0.0, -1.0),
        seen(5, 1.0, -0.1),
        seen(5, 1.0, 0.2, confirms=True),
        seen(11, 2.0, -1.0),
        TrialObservation(11, cause="memory", confirms=True),
    ]
    assert best(observations) == [0]


def test_deviation_falls_when_a_spec_is_measured_again():
    once = [seen(0, 0.0, -1.0), seen(5, 1.0, -1.0, noise=0.2), seen(11, 0.5, -1.0)]
    twice = [*once, seen(5, 1.0, -1.0, noise=0.2, confirms=True)]
    first, second = (
        ranked(observations, predict(SPACE, observations), quantile=Z99)[0] for observations in (once, twice)
    )
    assert (first.confirmations, second.confirmations) == (0, 1)
    assert second.deviation < first.deviation


def test_spec_whose_trials_all_stopped_early_ranks_but_is_not_the_best(monkeypatch):
    monkeypatch.setattr(next_decision, "LEAST_TRIALS", 1)
    observations = [seen(0, 0.0, -1.0), seen(5, 1.0, -1.0, censored=True), seen(11, 0.5, -1.0)]
    specs = ranked(observations, predict(SPACE, observations), quantile=Z99)
    assert specs[0].index == 5
    assert ranking.best(specs).index == 11
    assert decide(SPACE, observations, (), Budget(10, 2), settings=ENOUGH).indices == (5, 11)
    again = [*observations, seen(5, 1.0, -1.0, confirms=True)]
    assert ranking.best(ranked(again, predict(SPACE, again), quantile=Z99)).index == 5
    assert ranking.best(()) is None


def test_nearest_spec_ran_every_time():
    observations = [TrialObservation(0, cause="boot"), seen(1, 0.0, 0.7), seen(2, 0.0, 0.3)]
    assert nearest(observations) == MeanMargins(2, (0.3,))
    crashed = TrialObservation(2, cause="crash", confirms=True)
    assert nearest([*observations, crashed]) == MeanMargins(1, (0.7,))
    assert nearest(observations[:1]) is None
    assert nearest([observations[2], crashed]) is None


def test_nearest_spec_is_by_mean_margins():
    spec = nearest([seen(1, 0.0, -0.1), seen(1, 0.0, 0.5), seen(2, 0.0, 0.1)])
    assert spec == MeanMargins(2, (0.1,))


@pytest.mark.parametrize("margins", [(), (-1.0,)])
def test_search_names_no_constraint_when_the_only_spec_that_ran_crashes_later(margins):
    space = replace(SPACE, log_bounds=tuple(0.0 for _ in margins))
    observations = [
        *(TrialObservation(row, cause="crash") for row in range(8)),
        TrialObservation(8, log_objective=0.0, noise=0.01, margins=margins),
        TrialObservation(8, cause="crash", confirms=True),
    ]
    end = decide(space, observations, (), Budget(10), settings=SearchSettings())
    assert isinstance(end, Impossible)
    assert (end.constraint, end.nearest, end.margins) == (None, None, ())


def test_every_spec_that_ran_is_a_spec_without_constraints():
    space = grid(range(4), range(3))
    observations = [TrialObservation(row, log_objective=float(row), noise=0.01) for row in (0, 4, 9)]
    specs = ranked(observations, predict(space, observations), quantile=Z99)
    assert [spec.index for spec in specs] == [9, 4, 0]
    assert np.all([spec.safety == 0 for spec in specs])


STEP = 2.0**-10
"""Objectives are multiples of it, so that sums with them are exact."""


@st.composite
def specs(draw: st.DrawFn) -> list[RankedSpec]:
    """Return specs with few different objectives and probabilities, so that many are equal."""
    return [
        RankedSpec(
            index=index,
            log_objective=draw(st.integers(-20, 20)) * STEP,
            deviation=0.1,
            margins=(-0.5,),
            safety=draw(st.sampled_from([-0.5, -0.01, 0.0, 0.3])),
            probability=draw(st.sampled_from([0.5, 0.621, 0.624, 0.98, 0.99, 0.9999, 1.0])),
            confirmations=0,
            complete=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, 12)))
    ]


@given(specs())
def test_every_spec_is_ordered_once_and_the_safe_ones_come_first(given_candidates):
    order = ordered(given_candidates)
    assert sorted(spec.index for spec in order) == list(range(len(given_candidates)))
    assert [spec.is_safe for spec in order] == sorted((spec.is_safe for spec in order), reverse=True)


@given(specs())
def test_safe_choice_equals_the_best_objective_and_no_equal_one_is_surer(given_candidates):
    safe = [spec for spec in given_candidates if spec.is_safe]
    first = ordered(given_candidates)[0]
    if not safe:
        return
    best_objective = max(spec.log_objective for spec in safe)
    equal = [spec for spec in safe if best_objective - spec.log_objective <= EQUAL]
    assert first in equal
    assert first.percent == max(spec.percent for spec in equal)
    same = [spec for spec in equal if spec.percent == first.percent]
    assert first.log_objective == max(spec.log_objective for spec in same)


@given(specs())
def test_unsafe_specs_are_ordered_by_probability_and_then_by_objective(given_candidates):
    unsafe = [spec for spec in ordered(given_candidates) if not spec.is_safe]
    keys = [(-spec.percent, -spec.log_objective) for spec in unsafe]
    assert keys == sorted(keys)


@given(specs(), st.integers(-1000, 1000))
def test_order_does_not_depend_on_the_currency(given_candidates, shift):
    dearer = [replace(spec, log_objective=spec.log_objective + shift * STEP) for spec in given_candidates]
    assert [spec.index for spec in ordered(dearer)] == [spec.index for spec in ordered(given_candidates)]


@given(specs())
def test_rule_is_true_of_every_pair_in_order(given_candidates):
    for before, after in itertools.combinations(ordered(given_candidates), 2):
        gain, surer = before.log_objective - after.log_objective, before.percent - after.percent
        match rule(before, after):
            case "OnlySafe":
                assert before.is_safe
                assert not after.is_safe
            case "BetterObjective":
                assert before.is_safe
                assert after.is_safe
                assert gain >= 0
            case "EqualObjective":
                assert before.is_safe
                assert after.is_safe
                assert abs(gain) <= EQUAL
                assert surer > 0
            case "HigherProbability":
                assert not before.is_safe
                assert surer > 0
            case "EqualProbability":
                assert not before.is_safe
                assert surer == 0
                assert gain >= 0


def test_probability_and_not_the_width_of_the_noise_decides_when_no_spec_is_safe():
    """A stranger's search: 353 requests/s at 99.1 of 100 ms, and 495 at 93.2 ms with a wider scatter."""
    near = seen(0, math.log(353), math.log(99.1 / 100), margin_noise=0.02, scatter=0.184)
    surer = seen(5, math.log(495), math.log(93.2 / 100), margin_noise=0.02, scatter=0.223)
    first, second = ranked([near, surer], predict(SPACE, [near, surer]), quantile=Z99)
    assert not first.is_safe
    assert (first.index, second.index) == (5, 0)
    assert first.probability > second.probability
    assert first.safety < second.safety


def test_probability_is_that_of_one_further_measurement():
    once = seen(5, 1.0, -0.2, margin_noise=0.001, scatter=0.2)
    (spec,) = ranked([once], predict(SPACE, [once]), quantile=Z99)
    assert spec.probability == pytest.approx(0.84, abs=0.02)
    assert spec.safety < 0


def test_alternative_is_the_best_complete_spec_of_the_same_price():
    def spec(index: int, objective: float, *, complete: bool = True) -> RankedSpec:
        return RankedSpec(index, objective, 0.1, (-1.0,), 0.3, 0.995, 0, complete)

    log_cost = np.log([0.3, 0.1 + 0.2, 0.3, 0.3, 0.4])
    chosen, same, worse = spec(0, 1.0), spec(1, 0.8), spec(2, 0.5)
    early, dearer = spec(3, 0.9, complete=False), spec(4, 0.9)
    order = ordered([chosen, same, worse, early, dearer])
    assert alternative(order, chosen, log_cost) == IndexedAlternative(1, 0.995, "BetterObjective")
    assert alternative(order, dearer, log_cost) is None


def test_spec_is_not_complete_when_no_trial_gave_its_objective():
    space = grid(range(3), log_bounds=(0.0,))
    stopped = TrialObservation(0, log_objective=1.0, margins=(-1.0,), censored=True)
    broken = TrialObservation(0, margins=(0.5,))
    whole = TrialObservation(1, log_objective=0.5, margins=(-1.0,))
    seen = [stopped, broken, whole]
    specs = ranked(seen, predict(space, seen), quantile=1.6)
    assert {spec.index: spec.complete for spec in specs} == {0: False, 1: True}
