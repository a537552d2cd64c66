"""Our scaling policy in the form that the simulator asks for. Pure."""

import math
from array import array
from collections.abc import Callable
from functools import lru_cache

from autoscaler.decision_values import Decision
from autoscaler.forecast.fit import Fit, fit
from autoscaler.observation import Observation
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.sizer import Sizer
from autoscaler.settings import DEFAULTS
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import LoadHistory, PolicyInputs

REFIT = 1800.0
"""Seconds between fits of the forecast's regression, as in the controller."""
WARM_REFIT = 86_400.0
"""Seconds of the history between fits to it, before the run."""

MOST_FITS = 512
"""Cached fits: a week has 336, which are the same for one load under other risks and start-up times."""


@lru_cache(MOST_FITS)
def _cached_fit(levels: bytes) -> Fit | None:
    """Fit the forecast to `History.levels`, as bytes so that the cache can compare them."""
    return fit(array("f", levels))


class Fitted:
    """Our policy (`Sizer`) with the fits of its forecast, which the controller runs in another process."""

    def __init__(self, config: PolicyConfig, history: LoadHistory) -> None:
        self._sizer = Sizer(config)
        self._fit_at = -math.inf
        """Unix seconds of the next fit."""
        self._observe_history(history)

    @property
    def interval(self) -> float:
        return self._sizer.interval

    def decide(self, observation: Observation) -> Decision:
        """Return the decision for the observations since the last call."""
        if observation.now >= self._fit_at:
            self._fit_at = observation.now + REFIT
            self._fit()
        return self._sizer.decide(observation)

    def _observe_history(self, history: LoadHistory) -> None:
        """Teach the policy the load before the run, a day at a time."""
        steps = max(round(WARM_REFIT / history.step), 1)
        work = history.work.tolist()
        for begin in range(0, len(work), steps):
            part = work[begin : begin + steps]
            self._sizer.observe_history(
                history.start + (begin + len(part)) * history.step, history.step, part
            )
            self._fit()

    def _fit(self) -> None:
        self._sizer.set_fit(_cached_fit(self._sizer.history.levels.tobytes()))


def at(risk: float | None) -> Callable[[PolicyInputs], Policy]:
    """Return a builder of the policy at a risk in percent; None: the default."""

    def build(inputs: PolicyInputs) -> Policy:
        config = PolicyConfig(
            min_replicas=inputs.min_replicas,
            max_replicas=inputs.max_replicas,
            capacity=inputs.capacity,
            risk=DEFAULTS.risk if risk is None else risk,
        )
        return Fitted(config, inputs.history)

    return build
