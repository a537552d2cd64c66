"""The acquisition: expected improvement x P(constraints met) x P(boots) per expected cost of a trial."""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from tuner.search.posterior import Prediction
from tuner.search.problem import Floats, Observation


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return log E[max(0, f - best)] for f ~ N(mean, deviation²), exact far into the tail.

    Ament et al., Unexpected Improvements to Expected Improvement, NeurIPS 2023.
    """
    z = (mean - best) / deviation
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plain = np.log(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) + z * ndtr(z))
        # phi(z) + z Phi(z) = phi(z) (1 + z Phi(z) / phi(z)); the bracket tends to 1 / z² for z → -inf.
        log_phi = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        mills = np.exp(log_ndtr(z) - log_phi)
        tail = log_phi + np.where(z < -30, -2 * np.log(np.abs(z) + 1e-300), np.log1p(z * mills))
    return np.asarray(np.log(deviation) + np.where(z > -1, plain, tail))


def log_trial_cost(observations: Sequence[Observation], p_boots: Floats) -> Floats:
    """Return the logarithm of the expected seconds of a trial of each spec.

    A spec that boots takes as long as those that ran; one that does not, as long as those that failed.
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
        best: log objective of the best feasible spec so far; None while none is known, and then any is
            sought.
        log_trial_cost: of each spec.
    """
    tiny = 1e-12
    likely = np.log(np.maximum(prediction.p_meets, tiny)) + np.log(np.maximum(prediction.p_boots, tiny))
    if best is None:
        return np.asarray(likely - log_trial_cost)
    improvement = log_expected_improvement(prediction.objective.mean, prediction.objective.deviation, best)
    return np.asarray(improvement + likely - log_trial_cost)
