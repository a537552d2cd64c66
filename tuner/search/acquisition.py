"""The acquisition: expected improvement x P(constraints met) x P(boots) per expected cost of a trial."""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from tuner.search.posterior import Prediction
from tuner.search.problem import Floats, TrialObservation

LEAST_PROBABILITY = 1e-12
"""Lower bound of a probability, so that its logarithm is finite."""


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return log E[max(0, f - best)] for f ~ N(mean, deviation²), exact far into the tail.

    Ament et al., Unexpected Improvements to Expected Improvement, NeurIPS 2023.
    """
    z = (mean - best) / deviation
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # E = deviation * (phi(z) + z Phi(z)), with the standard normal density phi and distribution Phi.
        direct = np.log(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) + z * ndtr(z))
        # Below -1 that sum loses digits: phi(z) + z Phi(z) = phi(z) (1 + z Phi(z) / phi(z)) is taken instead.
        # Below -30 the bracket loses its own, and has its limit for z → -inf, 1 / z², within 0.4 %.
        log_phi = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        ratio = np.exp(log_ndtr(z) - log_phi)
        log_limit = -2 * np.log(np.abs(z) + 1e-300)  # both branches are computed, also at z = 0
        tail = log_phi + np.where(z < -30, log_limit, np.log1p(z * ratio))
    return np.asarray(np.log(deviation) + np.where(z > -1, direct, tail))


def log_trial_cost(observations: Sequence[TrialObservation], p_boots: Floats) -> Floats:
    """Return the logarithm of the expected seconds of a trial of each spec.

    A spec that boots takes as long as those that ran; one that does not, as long as those that failed.
    Zeros before a spec has run: all trials then count as equally long.
    """
    ran = [seen.seconds for seen in observations if seen.boots and seen.seconds > 0]
    failed = [seen.seconds for seen in observations if not seen.boots and seen.seconds > 0]
    if not ran:
        return np.zeros(len(p_boots))
    running = float(np.mean(ran))
    failing = float(np.mean(failed)) if failed else running
    return np.asarray(np.log(p_boots * running + (1 - p_boots) * failing))


def score(prediction: Prediction, best: float | None, log_trial_cost: Floats) -> Floats:
    """Return the logarithm of the acquisition of each spec.

    Args:
        prediction: of every spec.
        best: log objective of the best feasible spec so far; None before there is one: the search is then
            for any feasible spec, without regard to its objective.
        log_trial_cost: (n,) logarithm of the expected seconds of a trial of each spec.
    """
    log_p_meets = np.log(np.maximum(prediction.p_meets, LEAST_PROBABILITY))
    log_p_boots = np.log(np.maximum(prediction.p_boots, LEAST_PROBABILITY))
    log_p_feasible = log_p_meets + log_p_boots
    if best is None:
        return np.asarray(log_p_feasible - log_trial_cost)
    improvement = log_expected_improvement(prediction.objective.mean, prediction.objective.deviation, best)
    return np.asarray(improvement + log_p_feasible - log_trial_cost)
