"""The compared scaling policies by name: ours at several risks, and baselines."""

from collections.abc import Callable, Mapping
from functools import cache

from autoscaler.simulate import ours
from autoscaler.simulate.baselines import BASELINES
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import PolicyInputs

OURS = "slipway"
RISKS = (0.05, 0.2, 1.0, 2.5, 10.0)
"""Percent: risks beside the default, for the trade of cost against violations."""
HPA = "hpa"
KPA_RETENTION = "kpa tuned"
"""Knative with a window of 300 s and a retention of 15 minutes."""


@cache
def registry() -> Mapping[str, Callable[[PolicyInputs], Policy]]:
    """Return a builder for each policy."""
    swept = {f"{OURS} risk={risk:g}": ours.at(risk) for risk in RISKS}
    return {OURS: ours.at(None), **swept, **BASELINES}


def swept() -> list[str]:
    """Return the names of ours at other risks than the default."""
    return [name for name in registry() if name.startswith(f"{OURS} ")]
