import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from tuner.search.acquisition import log_expected_improvement, log_trial_cost, score
from tuner.search.posterior import Prediction
from tuner.search.problem import TrialObservation
from tuner.search.surrogate import Posterior

ONE = np.ones(1)


@pytest.mark.parametrize(("mean", "deviation", "best"), [(0, 1, 0), (1, 0.5, 0), (-2, 1, 0), (-4, 0.7, 1.5)])
def test_expected_improvement_is_its_integral(mean, deviation, best):
    expected, _ = integrate.quad(
        lambda f: (f - best) * stats.norm.pdf(f, mean, deviation),
        best,
        best + 12 * deviation + abs(mean),
        epsabs=1e-14,
    )
    logarithms = log_expected_improvement(mean * ONE, deviation * ONE, best)
    assert logarithms[0] == pytest.approx(math.log(expected), abs=1e-4)


@given(st.floats(-1e4, 50), st.floats(1e-3, 1e3))
def test_expected_improvement_is_finite_and_grows_with_the_mean(z, deviation):
    less, more = (
        log_expected_improvement(m * deviation * ONE, deviation * ONE, 0.0)[0] for m in (z, z + 0.5)
    )
    assert math.isfinite(less)
    assert more > less


def prediction(mean: list[float], meets: list[float], boots: list[float]) -> Prediction:
    return Prediction(
        Posterior(np.array(mean), np.full(len(mean), 0.1)), (), np.array(meets), np.array(boots), 0.0
    )


def test_score_falls_with_the_probability_to_boot_and_to_meet_the_constraints():
    scores = score(prediction([0, 0, 0], [1, 0.1, 1], [1, 1, 0.1]), 0.0, np.zeros(3))
    assert np.allclose(scores[0] - scores[1:], math.log(10))


def test_score_is_the_probability_to_be_feasible_before_a_feasible_spec():
    scores = score(prediction([0, 9], [0.5, 0.4], [1, 1]), None, np.zeros(2))
    assert np.argmax(scores) == 0


def test_score_falls_with_the_cost_of_the_trial():
    scores = score(prediction([0, 0], [1, 1], [1, 1]), 0.0, np.log([1.0, 2.0]))
    assert scores[0] - scores[1] == pytest.approx(math.log(2))


def test_trial_cost_of_a_spec_that_will_not_boot_is_that_of_failed_trials():
    seen = [
        TrialObservation(0, log_objective=0.0, seconds=30.0),
        TrialObservation(1, cause="timeout", seconds=120.0),
    ]
    assert np.exp(log_trial_cost(seen, np.array([1.0, 0.5, 0.0]))) == pytest.approx([30, 75, 120])


def test_trial_costs_are_equal_before_a_trial_ran():
    assert (
        np.ptp(log_trial_cost([TrialObservation(0, cause="crash", seconds=9.0)], np.array([1.0, 0.1]))) == 0
    )
