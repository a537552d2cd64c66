"""Laws of simulated start-up times: a fixed time with jitter, or as measured on a GPU fleet. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FAILURE_SHARE = 0.02
"""Share of starts that fail: they end after the time of a good start, and begin again."""
JITTER = 0.1
"""Standard deviation of the logarithm of a start-up time around its median, as of repeated starts of one
image.
"""

SCHEDULING_MEDIAN = 5.0
"""Median seconds until a node has the Pod, before the model loads."""
SCHEDULING_SIGMA = 0.5
"""Standard deviation of the logarithm of the seconds of scheduling: 2 to 11 s in 90 % of cases."""
LOAD_SHARES = (0.0, 0.1, 0.5, 0.9, 0.95, 0.99, 1.0)
LOAD_SECONDS = (1.0, 2.629, 22.718, 41.988, 45.449, 51.856, 79.436)
"""Seconds of loading a base model on a production fleet, at the quantiles `LOAD_SHARES`: a tenth of the loads
is from a cache, the others are remote.
"""


@dataclass(frozen=True, slots=True)
class Startup:
    """A law of start-up times."""

    name: str
    typical: float
    """Median in seconds, by which the oracle orders ahead."""
    draw: Callable[[np.random.Generator], float]
    """Return the seconds of the next start, whether it succeeds or not."""
    failure_share: float = FAILURE_SHARE


def around(seconds: float, *, jitter: float = JITTER, failure_share: float = FAILURE_SHARE) -> Startup:
    """Return starts of about `seconds`."""
    return Startup(
        name=f"{seconds:g}",
        typical=seconds,
        draw=lambda draws: seconds * float(np.exp(jitter * draws.standard_normal())),
        failure_share=failure_share,
    )


def fleet() -> Startup:
    """Return starts as on a production GPU fleet: scheduling, then a load that may be cached."""
    return Startup("fleet", SCHEDULING_MEDIAN + LOAD_SECONDS[LOAD_SHARES.index(0.5)], _of_fleet)


def _of_fleet(draws: np.random.Generator) -> float:
    scheduling = SCHEDULING_MEDIAN * float(np.exp(SCHEDULING_SIGMA * draws.standard_normal()))
    return scheduling + float(np.interp(draws.random(), LOAD_SHARES, LOAD_SECONDS))
