"""What Prometheus is told of decisions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.decision import Decision
from autoscaler.scaled import Scaled
from serving.kube import Key

_GAUGES: tuple[tuple[str, str, Callable[[Decision], float | None]], ...] = (
    ("slipway_autoscaler_desired_replicas", "Replicas that were decided on.", lambda d: d.replicas),
    ("slipway_autoscaler_needed_replicas", "Replicas that the load asks for, before every limit.", lambda d: d.needed),
    ("slipway_autoscaler_work_per_second", "Arriving work, now.", lambda d: d.rate),
    ("slipway_autoscaler_capacity_per_second", "Work that one replica can take; 0: not known.", lambda d: d.capacity),
    ("slipway_autoscaler_backlog_requests", "Requests beyond what replicas work on.", lambda d: d.backlog),
    ("slipway_autoscaler_startup_seconds", "What a start is expected to take.", lambda d: d.startup),
    ("slipway_autoscaler_forecast_upper", "Work per second that replicas are sized on, as of the last decision.",
     lambda d: d.forecast.upper if d.forecast is not None else None),
    ("slipway_autoscaler_forecast_median", "Work per second that is expected, as of the last decision.",
     lambda d: d.forecast.median if d.forecast is not None else None),
)  # fmt: skip


@dataclass
class Ticks:
    """What ticks have cost, and what was decided."""

    count: int = 0
    seconds: float = 0.0
    last: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    def took(self, seconds: float) -> None:
        """Count a tick."""
        self.count += 1
        self.seconds += seconds
        self.last = seconds

    def decided(self, reason: str) -> None:
        """Count a decision."""
        self.reasons[reason] += 1


def text(scaled: Mapping[Key, Scaled], ticks: Ticks) -> str:
    """Return the page, in Prometheus's text form."""
    found = sorted((key, one.decision) for key, one in scaled.items() if one.decision is not None)
    parts = [
        _family(name, "gauge", words, ((_labels(key), value(decision)) for key, decision in found))
        for name, words, value in _GAUGES
    ]
    active = (
        (_labels(key), float(one.is_active))
        for key, one in sorted(scaled.items())
        if one.decision is not None
    )
    parts.append(_family("slipway_autoscaler_active", "gauge",
                         "Whether decisions are done (1), or only said (0).", active))  # fmt: skip
    reasons = ((f'{{reason="{reason}"}}', float(count)) for reason, count in sorted(ticks.reasons.items()))
    parts += [
        _family("slipway_autoscaler_decisions_total", "counter", "Decisions, by the rule that bound.", reasons),
        _family(
            "slipway_autoscaler_tick_seconds", "summary", "Of reading all signals once.",
            (("_sum", ticks.seconds), ("_count", float(ticks.count))),
        ),
        _family("slipway_autoscaler_last_tick_seconds", "gauge", "Of the last one.", (("", ticks.last),)),
    ]  # fmt: skip
    return "".join(parts)


def _family(name: str, kind: str, words: str, samples: Iterable[tuple[str, float | None]]) -> str:
    lines = (f"{name}{labels} {value:g}\n" for labels, value in samples if value is not None)
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{''.join(lines)}"


def _labels(key: Key) -> str:
    return f'{{namespace="{key.namespace}",autoscaler="{key.name}"}}'
