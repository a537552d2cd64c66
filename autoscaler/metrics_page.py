"""The autoscaler's metrics page: for each Autoscaler the inputs of the last decision, the forecast, the rule
and the count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.decision_values import Decision
from autoscaler.state.target_state import TargetState
from serving.kube import Key
from serving.resources.formats.metrics_text import family

_GAUGES: tuple[tuple[str, str, Callable[[Decision], float | None]], ...] = (
    ("slipway_autoscaler_desired_replicas", "Replicas that were decided on.", lambda d: d.replicas),
    (
        "slipway_autoscaler_needed_replicas",
        "Replicas that the load asks for, before every limit.",
        lambda d: d.needed,
    ),
    ("slipway_autoscaler_work_per_second", "Arriving work, now.", lambda d: d.rate),
    (
        "slipway_autoscaler_capacity_per_second",
        "Work that one replica can take; 0: not known.",
        lambda d: d.capacity,
    ),
    ("slipway_autoscaler_backlog_requests", "Requests beyond what replicas work on.", lambda d: d.backlog),
    ("slipway_autoscaler_startup_seconds", "What a start is expected to take.", lambda d: d.startup),
    (
        "slipway_autoscaler_forecast_horizon_seconds",
        "From the last reading of the load to the time that is forecast.",
        lambda d: d.forecast.horizon if d.forecast is not None else None,
    ),
    (
        "slipway_autoscaler_forecast_lower",
        "Work per second at the horizon: the 10 % quantile.",
        lambda d: d.forecast.lower if d.forecast is not None else None,
    ),
    (
        "slipway_autoscaler_forecast_upper",
        "Work per second at the horizon: the quantile that replicas are sized on.",
        lambda d: d.forecast.upper if d.forecast is not None else None,
    ),
    (
        "slipway_autoscaler_forecast_median",
        "Work per second at the horizon: as likely more as less.",
        lambda d: d.forecast.median if d.forecast is not None else None,
    ),
)
"""Name, description, and value by a decision (None: no sample) of each gauge."""


@dataclass
class Ticks:
    """The number and duration of ticks, and the number of decisions by reason."""

    count: int = 0
    seconds: float = 0.0
    """Total duration."""
    last: float = 0.0
    """Seconds of the last tick."""
    reasons: Counter[str] = field(default_factory=Counter)

    def took(self, seconds: float) -> None:
        """Count a tick."""
        self.count += 1
        self.seconds += seconds
        self.last = seconds

    def decided(self, reason: str) -> None:
        """Count a decision."""
        self.reasons[reason] += 1


def text(state: Mapping[Key, TargetState], ticks: Ticks) -> str:
    """Return the page in the Prometheus text format."""
    decisions = sorted((key, target.decision) for key, target in state.items() if target.decision is not None)
    parts = [
        _number_family(
            name, "gauge", description, ((_labels(key), value(decision)) for key, decision in decisions)
        )
        for name, description, value in _GAUGES
    ]
    active = ((_labels(key), float(state[key].is_active)) for key, _ in decisions)
    rules = ((_labels(key, rule=d.reason, metric=d.metric), 1.0) for key, d in decisions)
    metric_needs = [
        (_labels(key, metric=metric_need.metric), metric_need)
        for key, d in decisions
        for metric_need in d.metric_needs
    ]
    parts += [
        _number_family(
            "slipway_autoscaler_active",
            "gauge",
            "Whether decisions are carried out (1), or only reported (0).",
            active,
        ),
        _number_family(
            "slipway_autoscaler_decision_info",
            "gauge",
            "The binding rule of the last decision, and the metric that decided.",
            rules,
        ),
        _number_family(
            "slipway_autoscaler_metric_value",
            "gauge",
            "Of each metric, all replicas together.",
            ((labels, metric_need.value) for labels, metric_need in metric_needs),
        ),
        _number_family(
            "slipway_autoscaler_metric_needed_replicas",
            "gauge",
            "Replicas that each metric asks for.",
            ((labels, metric_need.needed) for labels, metric_need in metric_needs),
        ),
    ]
    reasons = ((f'{{reason="{reason}"}}', float(count)) for reason, count in sorted(ticks.reasons.items()))
    parts += [
        _number_family(
            "slipway_autoscaler_decisions_total", "counter", "Decisions, by the binding rule.", reasons
        ),
        _number_family(
            "slipway_autoscaler_tick_seconds",
            "summary",
            "Of reading all signals once.",
            (("_sum", ticks.seconds), ("_count", float(ticks.count))),
        ),
        _number_family(
            "slipway_autoscaler_last_tick_seconds", "gauge", "Of the last one.", (("", ticks.last),)
        ),
    ]
    return "".join(parts)


def _number_family(
    name: str, kind: str, description: str, numbers: Iterable[tuple[str, float | None]]
) -> str:
    """Return one metric from pairs of its samples' labels and numbers (None: no sample)."""
    lines = (f"{name}{labels} {float(number)!r}\n" for labels, number in numbers if number is not None)
    return family(name, kind, description, lines)


def _labels(key: Key, **more: str) -> str:
    """Return labels between braces. The schema allows no value with a character that needs an escape."""
    labels = {"namespace": key.namespace, "autoscaler": key.name, **more}
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
