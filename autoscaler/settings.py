"""Every default of the autoscaler that a user may have a reason to change.

Constants of the policy's formulas stand beside their use. Nothing here reads the environment.
"""

from dataclasses import dataclass
from typing import Annotated

from serving.settings import Section
from serving.units import Interval, Port, Quantity

Risk = Annotated[float, Quantity("percent of requests", 0.001, 50)]


@dataclass(frozen=True)
class AutoscalerSettings(Section):
    """The autoscaler."""

    risk: Risk = 0.5
    """Requests that may arrive at too little capacity, for an Autoscaler without `spec.risk`: half of the
    limit for the hardest of the traces that the policy was measured on."""
    idle_seconds: Interval = 60.0
    """Between decisions on a target without requests whose count does not change: a prewarm may be this
    late."""
    stale_seconds: Interval = 15.0
    """Age of the last plausible reading from which the count is not reduced: the time of three readings."""
    save_seconds: Interval = 300.0
    """Between writes of the learned state of a target: at most this much is lost when the machine fails."""
    metrics_port: Port = 0
    """Port of `GET /metrics` on `pages.host`; 0 picks a free one, which `DIR/run/metrics/autoscaler.json`
    names."""


DEFAULTS = AutoscalerSettings()
