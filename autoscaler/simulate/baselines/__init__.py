"""Other scaling policies with their defaults, reimplemented from their sources for comparison.

Where a default depends on the workload, all reactive policies have the same target: 70 % of a replica's
capacity. Each file names the source of its rules; each class is a `autoscaler.simulate.policy.Policy`. Pure.
"""

from collections.abc import Callable, Mapping
from functools import partial

from autoscaler.simulate.baselines.ahpa import Ahpa
from autoscaler.simulate.baselines.aibrix import Apa
from autoscaler.simulate.baselines.dynamo import Dynamo
from autoscaler.simulate.baselines.hpa import Hpa
from autoscaler.simulate.baselines.keda import Keda
from autoscaler.simulate.baselines.knative import KPA_TUNED, Kpa
from autoscaler.simulate.baselines.last_value import LastValue
from autoscaler.simulate.baselines.ray import RayServe
from autoscaler.simulate.baselines.seasonal_naive import SeasonalNaive
from autoscaler.simulate.baselines.static import Static
from autoscaler.simulate.baselines.wva import Wva
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import PolicyInputs

BASELINES: Mapping[str, Callable[[PolicyInputs], Policy]] = {
    "static": Static,
    "hpa": Hpa,
    "kpa": Kpa,
    "kpa tuned": partial(Kpa, config=KPA_TUNED),
    "keda": Keda,
    "aibrix": Apa,
    "wva": Wva,
    "ray": RayServe,
    "ahpa": Ahpa,
    "dynamo": Dynamo,
    "seasonal naive": SeasonalNaive,
    "last value": LastValue,
}
"""A builder by name."""
